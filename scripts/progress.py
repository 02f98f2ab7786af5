"""Turns what a training of fairseq prints, with its log in JSON, into one line of progress."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from typing import IO

WIDTH = 30
SHOWN = {"ppl": "ppl", "isotropy": "I(W)", "rare_tokens": "rare tokens"}
LOGGED = re.compile(r"(?:\| |\[)(?:train_inner|valid)(?: \||\]\[INFO\] -) (\{.*\})")
"""A line of fairseq-train, and of fairseq-hydra-train."""
LENGTH = re.compile(r"'max_update': (\d+)")
"""In the settings, which are printed first."""


class Progress:
    """Redraws a line on a terminal, and prints a line for every tenth of the way elsewhere.

    Args:
        name: of the model.
        screen: where to show it.
        redraw: whether to redraw a line if the screen is a terminal.
    """

    def __init__(self, name: str, screen: IO[str], redraw: bool = True) -> None:
        self.name, self.screen = name, screen
        self.redraw = redraw and screen.isatty()
        self.updates = 0
        self.first: int | None = None
        self.printed = -1
        self.shown: dict[str, str] = {}
        self.started = time.time()

    def read(self, line: str) -> None:
        """Takes a line that the training prints; those without numbers are ignored."""
        if not self.updates and (length := LENGTH.search(line)):
            self.updates = int(length[1])
        found = LOGGED.search(line)
        try:
            logged = json.loads(found[1]) if found else {}
        except ValueError:  # text in braces
            return
        values = {key.removeprefix("valid_"): value for key, value in logged.items()}
        if values:
            self.shown |= {label: values[key] for key, label in SHOWN.items() if key in values}
            self._show(int(values["num_updates"]))

    def _show(self, done: int) -> None:
        self.first = done if self.first is None else self.first
        total = max(self.updates, done, 1)
        bar = "#" * (WIDTH * done // total)
        shown = "  ".join(f"{label} {value}" for label, value in self.shown.items())
        text = f"{self.name:<12} [{bar:<{WIDTH}}] {done:,}/{total:,}  {shown}"
        if self.redraw:
            seconds = (time.time() - self.started) / max(done - self.first, 1) * (total - done)
            print(f"\r{text}  {seconds:,.0f} s left   ", end="", file=self.screen, flush=True)
        elif 10 * done // total > self.printed:
            self.printed = 10 * done // total
            print(text, file=self.screen, flush=True)

    def close(self) -> None:
        """Ends the line on a terminal."""
        if self.redraw:
            print(file=self.screen)


def follow(
    name: str, lines: Iterable[bytes], screen: IO[str], copy: IO[bytes] | None = None, *, redraw: bool = True
) -> None:
    """Shows the progress of a training.

    Args:
        name: of the model.
        lines: what the training prints.
        screen: where the progress is shown.
        copy: gets the lines.
        redraw: whether a terminal shows one line that is redrawn; otherwise a line is printed for every tenth.
    """
    progress = Progress(name, screen, redraw)
    for line in lines:
        if copy is not None:
            copy.write(line)
            copy.flush()
        progress.read(line.decode(errors="replace"))
    progress.close()
