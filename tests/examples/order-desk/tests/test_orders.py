"""The order book without an agent."""

import pytest

from app.orders import OrderError, sample_orders


def test_an_order_is_refunded_once() -> None:
    orders = sample_orders()
    assert orders.refund("1001", "ada").state == "refunded"
    with pytest.raises(OrderError, match="refunded already"):
        orders.refund("1001", "ada")


@pytest.mark.parametrize("customer", ["bob", None])
def test_only_its_customer_finds_an_order(customer: str | None) -> None:
    with pytest.raises(OrderError, match="no order 1001 of this customer"):
        sample_orders().refund("1001", customer)
