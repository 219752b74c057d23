"""A time limit that does not count pauses of this process, and cancellation."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

STEPS = 100


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    """Raise TimeoutError after `seconds`, like asyncio.timeout.

    A blocked event loop or a paused process delays the answers to its requests. The limit consists
    of consecutive steps: a block uses up a single step, and the event loop reads pending answers in
    the next steps.
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


def is_cancelled() -> bool:
    """Whether the current task is cancelled, and not only a task that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a task whose caller may have left; asyncio would log it."""
    if not task.cancelled():
        task.exception()
