"""Errors of tools that no turn awaits: they are logged, and the process goes on."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from .log import log_unexpected


def survive_late_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log what a thread, a task or a callback raises."""
    threading.excepthook = _log_thread
    loop.set_exception_handler(_log_failure)


def run_to_end(runner: asyncio.Runner, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine; a SystemExit of another task, for which asyncio stops, is logged."""
    task = runner.get_loop().create_task(coroutine)
    while not task.done():
        try:
            runner.run(_join(task))
        except SystemExit as error:
            log_unexpected(error)
    return task.result()


async def _join(task: asyncio.Task[Any]) -> None:
    """Wait for a task; Ctrl-C cancels it."""
    await task


def _log_thread(failure: threading.ExceptHookArgs) -> None:
    """Log the kind of what a thread raised."""
    if failure.exc_value:
        log_unexpected(failure.exc_value)


def _log_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log the kind of what a task or a callback raised; not that a client left.

    A SystemExit also leaves the loop, and is logged there.
    """
    error = context.get("exception")
    if error and not isinstance(error, OSError | SystemExit):
        log_unexpected(error)
