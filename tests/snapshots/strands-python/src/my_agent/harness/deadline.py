"""A time limit that leaves out the time in which this process did not run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

STEPS = 100


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Raise TimeoutError after `seconds`, like asyncio.timeout.

    A blocked event loop, or a process without CPU, delays the answers that it waits for. So the
    limit consists of steps, of which each begins after the last has ended: a block uses up a single
    step, and in every step the event loop reads the answers that have arrived.
    """
    loop = asyncio.get_running_loop()
    steps = STEPS
    timer: asyncio.TimerHandle

    def end_step() -> None:
        nonlocal steps, timer
        steps -= 1
        if steps:
            timer = loop.call_later(seconds / STEPS, end_step)
        else:
            limit.reschedule(loop.time())

    timer = loop.call_later(seconds / STEPS, end_step)
    try:
        async with asyncio.timeout(None) as limit:
            yield limit
    finally:
        timer.cancel()
