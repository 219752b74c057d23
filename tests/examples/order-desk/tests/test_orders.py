"""The order book without an agent."""

from collections.abc import AsyncIterator

import pytest

from app.database import Pool
from app.orders import Order, OrderBook, OrderError


@pytest.fixture
async def orders() -> AsyncIterator[OrderBook]:
    """Open an order book on a file of its own: each test runs in a folder of its own."""
    async for book in opened():
        yield book


async def opened() -> AsyncIterator[OrderBook]:
    """Open an order book as one of several processes does."""
    pool = Pool("orders.db")
    book = OrderBook()
    await book.open(pool)
    yield book
    await pool.close()


async def test_an_order_is_refunded_once(orders: OrderBook) -> None:
    await orders.refund("1001", "ada")
    assert (await orders.find("1001", "ada")).state == "refunded"
    with pytest.raises(OrderError, match="refunded already"):
        await orders.refund("1001", "ada")


@pytest.mark.parametrize("customer", ["bob", None])
async def test_only_its_customer_finds_an_order(orders: OrderBook, customer: str | None) -> None:
    with pytest.raises(OrderError, match="no order 1001 of this customer"):
        await orders.refund("1001", customer)


async def test_a_known_order_is_not_added_again(orders: OrderBook) -> None:
    new = Order("1004", "ada", "a tray", "12.00 EUR", "packed")
    assert await orders.add([new, Order("1001", "ada", "nothing", "0 EUR", "packed")]) == 1
    assert (await orders.find("1001", "ada")).item == "a blue teapot"


async def test_of_two_processes_one_runs_a_job_when_it_is_due(orders: OrderBook) -> None:
    async for other in opened():
        assert await orders.claim("remind", now=0, seconds=60)
        assert not await other.claim("remind", now=59, seconds=60)
        assert await other.claim("remind", now=60, seconds=60)
        assert not await orders.claim("remind", now=61, seconds=60)
