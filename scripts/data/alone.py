"""One run at a time in a folder, the processes that it started included."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from .locks import lock


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Waits until no other run is at work in a folder, which is made if it is missing.

    A run that was killed is at work until the processes that it started have ended: they inherit the lock if they are
    started with `close_fds=False`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a", encoding="utf-8") as file:
        os.set_inheritable(file.fileno(), True)
        lock(file, f"another run in {folder}")
        yield
