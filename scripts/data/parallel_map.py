"""A map over a long stream by several processes: results in order, bounded memory, and no process left behind.

`ProcessPoolExecutor.map` and `multiprocessing.Pool.imap` read the whole stream before the first result, and their
workers survive a main process that was killed.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from agg_fairseq.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNK = 1000
"""Items that a process is given at a time."""
WAITING = 4
"""Chunks per process that are being worked on or wait for an earlier one."""


def in_order(
    work: Callable[[list[Item]], list[Result]], items: Iterable[Item], workers: int, chunk: int = CHUNK
) -> Iterator[Result]:
    """Yields the results of `work` on chunks of a stream, in the order of the stream.

    Args:
        work: maps a chunk to its results; it has to be picklable. The processes keep what it caches.
        items: the stream, read as it is needed.
        workers: number of processes, at least 1.
        chunk: number of items that a process is given at a time.

    Raises:
        UserError: a process was killed, as when memory runs out.
        Exception: that of `work`.
    """
    pool = ProcessPoolExecutor(workers, initializer=_start)
    items, pending = iter(items), deque[Future[list[Result]]]()
    try:
        while part := list(itertools.islice(items, chunk)):
            if len(pending) == workers * WAITING:
                yield from pending.popleft().result()
            pending.append(pool.submit(work, part))
        while pending:
            yield from pending.popleft().result()
    except BrokenProcessPool as error:
        raise UserError("a worker process was killed, perhaps for want of memory; try fewer --workers") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start() -> None:
    """A worker leaves interrupts to the main process, and ends with it, even if that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
