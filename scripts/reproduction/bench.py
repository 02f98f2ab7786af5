"""Where an experiment is run: folders, the scale, and the commands that do the work."""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agg_fairseq.cli.main import main as agg_fairseq_main
from agg_fairseq.errors import UserError

from .experiment import Model

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
INTERRUPTED = 130
TAIL = 15
"""Lines of a failed command's output that are shown."""


@dataclass
class Bench:
    """A place and a way to run experiments.

    Args:
        scale: one of `SCALES`.
        output: folder of all that is made: a folder per model, data, tables.
        data: what the user gave as `--data`.
        overrides: of every training, from the command line.
        train: train what is missing? Otherwise only what is there is measured.
        dry: only say what would be done?
    """

    scale: str
    output: Path
    data: Path | None = None
    overrides: tuple[str, ...] = ()
    train: bool = True
    dry: bool = False
    signatures: dict[str, None] = field(default_factory=dict)
    """Of the measures taken, in order."""
    prepared: dict[Path, Any] = field(default_factory=dict)
    """The corpora that were looked at, by folder."""

    def folder(self, model: Model) -> Path:
        """Of a model's checkpoints, logs and measures."""
        return self.output / model.name

    def say(self, text: str) -> None:
        """A line of progress."""
        print(f"reproduce: {text}", file=sys.stderr, flush=True)

    def measure(self, *command: str | Path) -> None:
        """A command of `agg-fairseq`, in this process: its progress is shown, its table is not.

        Raises:
            UserError: it failed; it has said why.
        """
        words = [str(word) for word in command]
        if self.dry:
            print(shlex.join([str(BIN / "agg-fairseq"), *words]))
            return
        try:
            with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):  # one that can be reconfigured
                status = agg_fairseq_main(words)
        except SystemExit as stop:  # of argparse, which has said why
            status = stop.code
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        if status:
            raise UserError(f"agg-fairseq {words[0]} failed (status {status}), see above; mend that and run it again")

    def run(self, command: Sequence[str | Path], output: Path) -> None:
        """Runs a command of fairseq whose standard output is a file, written whole or not at all.

        Raises:
            UserError: it failed.
        """
        words = [str(BIN / command[0]), *map(str, command[1:])]
        partial, log = output.with_name(f".{output.name}.partial"), output.with_suffix(".messages")
        with open(partial, "wb") as printed, open(log, "wb") as said:
            status = subprocess.run(words, stdout=printed, stderr=said, check=False).returncode
        if status:
            raise failed(str(command[0]), status, log)
        partial.replace(output)

    def prepare(self, command: Sequence[str | Path]) -> None:
        """Runs a script that prepares data, whose progress is shown; or only says which.

        Raises:
            UserError: it failed; it has said why.
        """
        words = [str(word) for word in command]
        if self.dry:
            print(shlex.join(words))
        elif status := subprocess.run(words, stdout=sys.stderr, check=False).returncode:
            raise UserError(f"{shlex.join(words)} failed (status {status}), see above; mend that and run it again")


def check_fit(folder: Path) -> None:
    """Sees that fairseq can be given a folder, or what is in it: it splits data at colons, and hydra replaces ${…}.

    Raises:
        UserError: it cannot.
    """
    if any(part in str(folder) for part in (":", "${", "\n")):
        raise UserError(
            f"found the folder {str(folder)!r}; expected a path without ':', '${{' and line ends: fairseq cannot take "
            "these; name others with --output and --data"
        )


def failed(what: str, status: int, log: Path) -> UserError:
    """Shows the end of the log of something that failed; the error that says so."""
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    print("\n".join(lines[-TAIL:]), file=sys.stderr)
    return UserError(f"{what} failed (status {status}); its output is in {log}; run it again to go on")
