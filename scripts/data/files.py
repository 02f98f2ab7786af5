"""Digests of files, and the lock of a folder in which one run works at a time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


def digest(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    hasher = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            hasher.update(chunk)
    return hasher.hexdigest()


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
        with contextlib.suppress(OSError):  # of a network file system without locks
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another run in {folder} to end", file=sys.stderr)
                fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
