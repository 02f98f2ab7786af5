"""Turns what a training of fairseq prints, with its log in JSON, into one line of progress.

fairseq-train … --log-format json | python scripts/run.py scripts.progress NAME
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable
from typing import IO

WIDTH = 30
SHOWN = {"ppl": "ppl", "isotropy": "I(W)", "rare_tokens": "rare tokens"}
LOGGED = re.compile(r"(?:\| |\[)(?:train_inner|valid)(?: \||\]\[INFO\] -) (\{.*\})")
"""A line of fairseq-train, and of fairseq-hydra-train."""
LENGTH = re.compile(r"'max_update': (\d+)")
"""In the settings, which are printed first."""


def numbers(line: str) -> dict[str, str]:
    """Those of a line of the log; none, where it is another line."""
    found = LOGGED.search(line)
    try:
        logged = json.loads(found[1]) if found else {}
    except ValueError:  # text in braces
        return {}
    return {key.removeprefix("valid_"): value for key, value in logged.items()}


class Progress:
    """Redraws the line on a terminal, and prints every tenth of the way elsewhere.

    Args:
        name: of the model.
        screen: where to show it.
    """

    def __init__(self, name: str, screen: IO[str]) -> None:
        self.name, self.screen = name, screen
        self.updates = 0
        self.first: int | None = None
        self.printed = -1
        self.shown: dict[str, str] = {}
        self.started = time.time()

    def read(self, line: str) -> None:
        """A line of what the training prints."""
        if not self.updates and (length := LENGTH.search(line)):
            self.updates = int(length[1])
        if values := numbers(line):
            self.shown |= {label: values[key] for key, label in SHOWN.items() if key in values}
            self._show(int(values["num_updates"]))

    def _show(self, done: int) -> None:
        self.first = done if self.first is None else self.first
        total = max(self.updates, done, 1)
        bar = "#" * (WIDTH * done // total)
        shown = "  ".join(f"{label} {value}" for label, value in self.shown.items())
        text = f"{self.name:<12} [{bar:<{WIDTH}}] {done:,}/{total:,}  {shown}"
        if self.screen.isatty():
            seconds = (time.time() - self.started) / max(done - self.first, 1) * (total - done)
            print(f"\r{text}  {seconds:,.0f} s left   ", end="", file=self.screen, flush=True)
        elif 10 * done // total > self.printed:
            self.printed = 10 * done // total
            print(text, file=self.screen, flush=True)

    def close(self) -> None:
        """Ends the line on a terminal."""
        if self.screen.isatty():
            print(file=self.screen)


def follow(name: str, lines: Iterable[bytes], screen: IO[str], copy: IO[bytes] | None = None) -> None:
    """Shows the progress of a training from the lines that it prints, and keeps them in `copy`."""
    progress = Progress(name, screen)
    for line in lines:
        if copy is not None:
            copy.write(line)
            copy.flush()
        progress.read(line.decode(errors="replace"))
    progress.close()


if __name__ == "__main__":
    follow(sys.argv[1], sys.stdin.buffer, sys.stdout)
