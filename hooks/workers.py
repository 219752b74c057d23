"""Apply a function to many rows, in a process for each core."""

import multiprocessing
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Row = TypeVar("Row")
Result = TypeVar("Result")

# The start of the processes takes as long as some renders.
FEW = 4
# A fork of the current process could deadlock, because tests have threads. A server without threads
# forks the processes instead; Windows has no such server.
KINDS = multiprocessing.get_all_start_methods()
CONTEXT = multiprocessing.get_context("forkserver" if "forkserver" in KINDS else "spawn")


@contextmanager
def started(work: Callable[[Row], Result], rows: Collection[Row]) -> Iterator[Iterator[Result]]:
    """Yield the results of `work` in the order of `rows`; the processes start at once.

    A few rows need no processes: they wait until the caller asks for their results. At the end,
    rows that have not begun are dropped.
    """
    if len(rows) <= FEW:
        yield map(work, rows)
        return
    CONTEXT.set_forkserver_preload(["hooks.rendering"])
    pool = ProcessPoolExecutor(mp_context=CONTEXT)
    try:
        yield pool.map(work, rows)
    finally:
        pool.shutdown(cancel_futures=True)
