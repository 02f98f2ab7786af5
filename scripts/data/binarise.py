"""fairseq-preprocess, quiet unless it fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from agg_fairseq.errors import UserError

SPLITS = ("train", "valid", "test")
SPECIAL = 4
"""Entries of every dictionary of fairseq that its file leaves out: beginning, padding, end, unknown."""


def binarise(text: Path, folder: Path, workers: int, options: Sequence[str]) -> None:
    """Runs fairseq-preprocess, the one beside this Python.

    Args:
        text: folder of the files of `SPLITS`, with the languages as suffixes where there are any.
        folder: where to write.
        workers: processes.
        options: others of fairseq-preprocess.

    Raises:
        UserError: it failed, with the last line that it printed.
    """
    program = Path(sys.executable).with_name("fairseq-preprocess")
    prefixes = [f"--{split}pref={text / split}" for split in SPLITS]
    command = [str(program), *prefixes, f"--destdir={folder}", f"--workers={workers}", *options]
    try:
        # the lock of a run is inherited, so that the next one waits for what is left of one that was killed
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", close_fds=False)
    except FileNotFoundError as error:
        raise UserError(f"found no {program}; expected fairseq in this environment; run scripts/setup.sh") from error
    if result.returncode:
        said = (result.stderr or result.stdout).strip().splitlines() or [f"status {result.returncode}"]
        raise UserError(f"fairseq-preprocess failed ({said[-1].strip()}); mend that and run it again")


def dictionary_size(path: Path) -> int:
    """How many entries a dictionary has, the special ones included.

    Args:
        path: its file, as fairseq-preprocess writes it.
    """
    with open(path, "rb") as file:
        return SPECIAL + sum(1 for _ in file)
