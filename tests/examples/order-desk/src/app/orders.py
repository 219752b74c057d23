"""The order book: SQL on the tables `orders` and `jobs`."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from .database import Pool

TABLES = """\
CREATE TABLE IF NOT EXISTS orders (
    id TEXT PRIMARY KEY, customer TEXT NOT NULL, item TEXT NOT NULL, price TEXT NOT NULL,
    state TEXT NOT NULL, reminders INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS jobs (name TEXT PRIMARY KEY, due REAL NOT NULL);
"""


@dataclass(frozen=True)
class Order:
    """An order of one customer, who is the actor of the turns that may see it."""

    id: str
    customer: str
    item: str
    price: str
    state: str  # packed, sent, delivered or refunded


SAMPLES = [
    Order("1001", "ada", "a blue teapot", "32.00 EUR", "delivered"),
    Order("1002", "ada", "two cups", "18.50 EUR", "packed"),
    Order("1003", "bob", "a kettle", "49.90 EUR", "sent"),
]


class OrderError(Exception):
    """An order that cannot be found or refunded; the model reads the text."""


class OrderBook:
    """All orders, each of which only its customer can find."""

    _pool: Pool

    async def open(self, pool: Pool) -> None:
        """Use a pool; create the tables in it, with orders to try the agent with."""
        self._pool = pool
        await pool.run(lambda it: it.executescript(TABLES))
        await self.add(SAMPLES)

    async def find(self, order_id: str, customer: str | None) -> Order:
        """Return an order of this customer. Others do not learn whether it exists."""
        for order in await self.find_all(customer):
            if order.id == order_id:
                return order
        raise OrderError(f"There is no order {order_id} of this customer.")

    async def find_all(self, customer: str | None) -> list[Order]:
        """Return the orders of a customer."""
        query = "SELECT id, customer, item, price, state FROM orders WHERE customer = ? ORDER BY id"
        rows = await self._pool.run(lambda it: it.execute(query, [customer]).fetchall())
        return [Order(*row) for row in rows]

    async def refund(self, order_id: str, customer: str | None) -> Order:
        """Refund an order, and only once: a turn that failed after its refund may be repeated."""
        order = await self.find(order_id, customer)
        query = "UPDATE orders SET state = 'refunded' WHERE id = ? AND state != 'refunded'"
        if not await self._change(query, order_id):
            raise OrderError(f"Order {order_id} has been refunded already.")
        return order

    async def move(self, order_id: str, state: str) -> None:
        """Record where the parcel of an order is, unless the order is refunded."""
        query = "UPDATE orders SET state = ? WHERE id = ? AND state != 'refunded'"
        await self._change(query, state, order_id)

    async def add(self, orders: Iterable[Order]) -> int:
        """Add orders, and return how many; a known order stays unchanged."""
        query = "INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?, ?, 0)"
        rows = [astuple(order) for order in orders]
        return await self._pool.run(lambda it: it.executemany(query, rows).rowcount)

    async def remind(self) -> int:
        """Remind the packers of the orders that wait for them, and return how many there are."""
        return await self._change(
            "UPDATE orders SET reminders = reminders + 1 WHERE state = 'packed'"
        )

    async def claim(self, job: str, now: float, seconds: float) -> bool:
        """Whether this process runs a job now: the first to ask when it is due does.

        It is due again after so many seconds. One statement decides, so two processes cannot.
        """
        query = "INSERT INTO jobs VALUES (?, ?) ON CONFLICT (name) DO UPDATE"
        query += " SET due = excluded.due WHERE due <= ?"
        return await self._change(query, job, now + seconds, now) == 1

    async def _change(self, query: str, *values: str | float) -> int:
        return await self._pool.run(lambda it: it.execute(query, values).rowcount)


# The capability `Shop` opens it with the process.
ORDERS = OrderBook()
