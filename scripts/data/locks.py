"""Locks between processes, by flock: they end with the processes that hold them, also where these are killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


def lock(file: IO[Any], awaited: str) -> None:
    """Takes the lock of an open file, which is held until the file is closed here and in all processes that inherit it.

    On a network file system without locks, nothing is taken.
    """
    with contextlib.suppress(OSError):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for {awaited} to end", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)


@contextlib.contextmanager
def only_run_in(folder: Path) -> Iterator[int]:
    """Waits until no other run works in a folder, which is created if it is missing.

    Yields:
        The descriptor of the lock's file. A process that inherits it (`pass_fds`, or `close_fds=False`) keeps the lock
        if this one is killed, so that the next run waits for what is left of this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a", encoding="utf-8") as file:
        os.set_inheritable(file.fileno(), True)
        lock(file, f"another run in {folder}")
        yield file.fileno()
