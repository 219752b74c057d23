"""Apply a function to many rows, in a process for each core."""

import multiprocessing
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

Row = TypeVar("Row")
Result = TypeVar("Result")

# The start of the processes takes as long as some renders.
FEW = 4
# A fork of the current process could deadlock, because tests have threads. A server without threads
# forks the processes instead; Windows has no such server.
KINDS = multiprocessing.get_all_start_methods()
CONTEXT = multiprocessing.get_context("forkserver" if "forkserver" in KINDS else "spawn")


@cache
def _pool() -> ProcessPoolExecutor:
    """Return the processes, which keep what they have compiled until this process ends."""
    CONTEXT.set_forkserver_preload(["hooks.check", "hooks.snapshots", "hooks.weights"])
    pool = ProcessPoolExecutor(mp_context=CONTEXT)
    with chdir(Path(__file__).parents[1]):
        pool.submit(int)  # starts the server, which imports from the current folder
    return pool


@contextmanager
def started(work: Callable[[Row], Result], rows: Collection[Row]) -> Iterator[Iterator[Result]]:
    """Yield the results of `work` in the order of `rows`; the work starts at once.

    A few rows need no processes: they wait until the caller asks for their results. At the end,
    rows that have not begun are dropped.
    """
    if len(rows) <= FEW:
        yield map(work, rows)
        return
    futures = [_pool().submit(work, row) for row in rows]
    try:
        yield (future.result() for future in futures)
    finally:
        wait([future for future in futures if not future.cancel()])
