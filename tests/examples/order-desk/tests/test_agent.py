"""Conversations with the order desk, in which the offline model calls its tools."""

import sqlite3

from click.testing import CliRunner

from app.main import cli

REFUND = 'use refund_order: {"order_id": "1001", "reason": "It leaks."}'


def chat(actor: str, *lines: str) -> str:
    typed = "".join(f"{line}\n" for line in lines)
    return CliRunner().invoke(cli, ["chat", "--actor", actor], input=typed).stdout


def state_of(order_id: str) -> str:
    """Return the state that the database has; each test has a database of its own."""
    (row,) = sqlite3.connect("orders.db").execute(
        "SELECT state FROM orders WHERE id = ?", [order_id]
    )
    return str(row[0])


def test_customers_see_their_orders() -> None:
    assert "two cups for 18.50 EUR. It is packed." in chat("ada", "use look_up_order: 1002")


def test_nobody_sees_the_order_of_somebody_else() -> None:
    for actor in ("bob", "mallory"):
        said = chat(actor, "use look_up_order: 1002")
        assert "There is no order 1002 of this customer." in said
        assert "two cups" not in said


def test_a_refund_runs_after_a_person_said_yes() -> None:
    said = chat("ada", REFUND, "y")
    assert "Run refund_order" in said
    assert "Order 1001 is refunded: 32.00 EUR." in said
    assert state_of("1001") == "refunded"


def test_a_refund_that_a_person_denies_never_runs() -> None:
    assert "Denied by a person: send it back first" in chat("ada", REFUND, "send it back first")
    assert state_of("1001") == "delivered"
