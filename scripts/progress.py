"""Turns what a training of fairseq prints, with its log in JSON, into one line of progress."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from typing import IO, Any

WIDTH = 30
SHOWN = {"ppl": "ppl", "isotropy": "I(W)", "rare_tokens": "rare tokens"}
LOGGED = re.compile(r"(?:\| |\[)(?:train_inner|valid)(?: \||\]\[INFO\] -) (\{.*\})")
"""A line of fairseq-train, and of fairseq-hydra-train."""
LENGTH = re.compile(r"'max_update': (\d+)")  # in the settings, which are printed first


def follow(name: str, lines: Iterable[bytes], screen: IO[str], copy: IO[bytes], *, redraw: bool = True) -> None:
    """Shows the progress of a training: one line that is redrawn on a terminal, a line for every tenth elsewhere.

    `copy` gets all lines that the training prints. Without `redraw`, a terminal is treated as anything else.
    """
    redraw = redraw and screen.isatty()
    updates, first, printed, started = 0, None, -1, time.time()
    shown: dict[str, object] = {}
    for line in lines:
        copy.write(line)
        copy.flush()
        text = line.decode(errors="replace")
        if not updates and (length := LENGTH.search(text)):
            updates = int(length[1])
        values = _logged(text)
        if not values:
            continue
        shown |= {label: values[key] for key, label in SHOWN.items() if key in values}
        done = int(values["num_updates"])
        first = done if first is None else first
        total = max(updates, done, 1)
        bar = "#" * (WIDTH * done // total)
        numbers = "  ".join(f"{label} {value}" for label, value in shown.items())
        text = f"{name:<12} [{bar:<{WIDTH}}] {done:,}/{total:,}  {numbers}"
        if redraw:
            seconds = (time.time() - started) / max(done - first, 1) * (total - done)
            print(f"\r{text}  {seconds:,.0f} s left   ", end="", file=screen, flush=True)
        elif 10 * done // total > printed:
            printed = 10 * done // total
            print(text, file=screen, flush=True)
    if redraw:
        print(file=screen)


def _logged(text: str) -> dict[str, Any]:
    """The numbers of a line, those of validation under the same names; none where it has none."""
    match = LOGGED.search(text)
    try:
        logged = json.loads(match[1]) if match else {}
    except ValueError:  # text in braces
        return {}
    return {key.removeprefix("valid_"): value for key, value in logged.items()}
