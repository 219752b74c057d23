"""Logs errors outside turns, so that the process survives them."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from .log import log_unexpected


def survive_late_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log the errors of threads, tasks and callbacks."""
    threading.excepthook = _log_thread
    loop.set_exception_handler(_log_failure)


def run_to_end(runner: asyncio.Runner, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine; log a SystemExit of another task, which stops the loop."""
    task = runner.get_loop().create_task(coroutine)
    while not task.done():
        try:
            runner.run(_join(task))
        except SystemExit as error:
            log_unexpected(error)
    return task.result()


async def _join(task: asyncio.Task[Any]) -> None:
    """Wait for a task, so that Ctrl-C cancels it."""
    await task


def _log_thread(failure: threading.ExceptHookArgs) -> None:
    """Log the error of a thread."""
    if failure.exc_value:
        log_unexpected(failure.exc_value)


def _log_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log the error of a task or a callback, except that a client has disconnected.

    `run_to_end` and `run_server` log a SystemExit.
    """
    error = context.get("exception")
    if error and not isinstance(error, OSError | SystemExit):
        log_unexpected(error)
