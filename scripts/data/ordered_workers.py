"""Work on a long stream of items by several processes, in order, with bounded memory."""

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
"""Items that a process is handed at a time."""
WAITING = 4
"""Chunks per process that are worked on or wait for an earlier one."""


def in_order(
    work: Callable[[list[Item]], list[Result]], items: Iterable[Item], workers: int, chunk: int = CHUNK
) -> Iterator[Result]:
    """The results of work on chunks of a stream, in the order of the stream, whichever process is faster.

    Args:
        work: the results of a chunk; a function that can be pickled. The processes keep what it caches.
        items: read as they are needed.
        workers: processes, at least 1.
        chunk: items that a process is handed at a time.

    Raises:
        UserError: a process was killed, as when memory runs out.
        Exception: that of `work`.
    """
    pool = ProcessPoolExecutor(workers, initializer=_start)
    try:
        yield from _results(pool, work, iter(items), workers * WAITING, chunk)
    except BrokenProcessPool as error:
        raise UserError("a worker process was killed, perhaps for want of memory; try fewer --workers") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _results(
    pool: ProcessPoolExecutor,
    work: Callable[[list[Item]], list[Result]],
    items: Iterator[Item],
    waiting: int,
    chunk: int,
) -> Iterator[Result]:
    pending: deque[Future[list[Result]]] = deque()
    while part := list(itertools.islice(items, chunk)):
        if len(pending) == waiting:
            yield from pending.popleft().result()
        pending.append(pool.submit(work, part))
    while pending:
        yield from pending.popleft().result()


def _start() -> None:
    """A worker leaves interrupts to the main process, and ends with it, also where that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
