"""Conversations with the order desk, in which the offline model calls its tools."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from app.main import cli
from app.orders import OrderBook, sample_orders

REFUND = 'use refund_order: {"order_id": "1001", "reason": "It leaks."}'


@pytest.fixture(autouse=True)
def orders() -> Iterator[OrderBook]:
    """Give each test an order book of its own."""
    with patch("app.agent.ORDERS", sample_orders()) as book:
        yield book


def chat(actor: str, *lines: str) -> str:
    typed = "".join(f"{line}\n" for line in lines)
    return CliRunner().invoke(cli, ["chat", "--actor", actor], input=typed).stdout


def test_customers_see_their_orders() -> None:
    assert "two cups for 18.50 EUR. It is packed." in chat("ada", "use look_up_order: 1002")


def test_nobody_sees_the_order_of_somebody_else() -> None:
    for actor in ("bob", "mallory"):
        said = chat(actor, "use look_up_order: 1002")
        assert "There is no order 1002 of this customer." in said
        assert "two cups" not in said


def test_a_refund_runs_after_a_person_said_yes(orders: OrderBook) -> None:
    said = chat("ada", REFUND, "y")
    assert "Run refund_order" in said
    assert "Order 1001 is refunded: 32.00 EUR." in said
    assert orders.find("1001", "ada").state == "refunded"


def test_a_refund_that_a_person_denies_never_runs(orders: OrderBook) -> None:
    assert "Denied by a person: send it back first" in chat("ada", REFUND, "send it back first")
    assert orders.find("1001", "ada").state == "delivered"
