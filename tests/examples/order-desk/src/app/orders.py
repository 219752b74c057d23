"""The order book. It lives in memory and starts anew with the process: put your database here."""

from dataclasses import dataclass


@dataclass
class Order:
    """An order of one customer, who is the actor of the turns that may see it."""

    id: str
    customer: str
    item: str
    price: str
    state: str  # packed, sent, delivered or refunded


class OrderError(Exception):
    """An order that cannot be found or refunded; the model reads the text."""


class OrderBook:
    """All orders, each of which only its customer can find."""

    def __init__(self, *orders: Order) -> None:
        self._orders = {order.id: order for order in orders}

    def find(self, order_id: str, customer: str | None) -> Order:
        """Return an order of this customer. Others do not learn whether it exists."""
        order = self._orders.get(order_id)
        if order is None or order.customer != customer:
            raise OrderError(f"There is no order {order_id} of this customer.")
        return order

    def refund(self, order_id: str, customer: str | None) -> Order:
        """Refund an order, and only once: a turn that failed after its refund may be repeated."""
        order = self.find(order_id, customer)
        if order.state == "refunded":
            raise OrderError(f"Order {order_id} has been refunded already.")
        order.state = "refunded"
        return order


def sample_orders() -> OrderBook:
    """Return orders to try the agent with."""
    return OrderBook(
        Order("1001", "ada", "a blue teapot", "32.00 EUR", "delivered"),
        Order("1002", "ada", "two cups", "18.50 EUR", "packed"),
        Order("1003", "bob", "a kettle", "49.90 EUR", "sent"),
    )
