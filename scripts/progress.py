"""Turns what a training of fairseq prints, with its log in JSON, into a bar of progress."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterable
from typing import IO

SHOWN = {"ppl": "ppl", "isotropy": "I(W)", "rare_tokens": "rare tokens"}
LOGGED = re.compile(r"(?:\| |\[)(?:train_inner|valid)(?: \||\]\[INFO\] -) (\{.*\})")
"""A line of fairseq-train, and of fairseq-hydra-train."""
LENGTH = re.compile(r"'max_update': (\d+)")  # in the settings, which are printed first


def follow(name: str, lines: Iterable[bytes], screen: IO[str], copy: IO[bytes]) -> None:
    """Shows the progress of a training on a terminal; `copy` gets all lines that it prints."""
    from tqdm import tqdm  # not above: --help and --list work before .venv exists

    shown: dict[str, object] = {}
    with tqdm(desc=name, unit=" updates", file=screen, disable=not screen.isatty()) as bar:
        for line in lines:
            copy.write(line)
            copy.flush()
            text = line.decode(errors="replace")
            if bar.total is None and (length := LENGTH.search(text)):
                bar.total = int(length[1])
            match = LOGGED.search(text)
            try:
                logged = json.loads(match[1]) if match else {}
            except ValueError:  # text in braces
                continue
            values = {key.removeprefix("valid_"): value for key, value in logged.items()}
            if values:
                shown |= {label: values[key] for key, label in SHOWN.items() if key in values}
                if not bar.n:  # where a resumed training begins
                    bar.initial = int(values["num_updates"])
                bar.set_postfix(shown, refresh=False)
                bar.update(int(values["num_updates"]) - bar.n)


if __name__ == "__main__":  # of what standard input gives: NAME LOG
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # to the end of what the training prints
    with open(sys.argv[2], "wb") as log:
        follow(sys.argv[1], sys.stdin.buffer, sys.stderr, log)
