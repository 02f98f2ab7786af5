"""Locks between processes."""

from __future__ import annotations

import contextlib
import fcntl
import sys
from typing import IO, Any


def lock(file: IO[Any], awaited: str) -> None:
    """Takes the lock of an open file, which lasts until it is closed here and in the processes that inherited it.

    Args:
        file: any; on a network file system that has no locks, nothing is taken.
        awaited: what the user is told to be waited for, where another process has it.
    """
    with contextlib.suppress(OSError):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for {awaited} to end", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
