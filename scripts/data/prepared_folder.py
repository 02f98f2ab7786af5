"""How every corpus is prepared: in one folder, stage by stage, with a manifest that is written last.

Each stage fills a folder of its own (`text`, `data-bin`, …), which appears whole or not at all and is skipped where it
is there already. So a preparation that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from agg_fairseq.errors import UserError
from agg_fairseq.files import read_json_object, write_json

from ..command import whole_number
from .files import count_lines, digest, only_run_in

SPLITS = ("train", "valid", "test")
SETTINGS = "settings.json"
MANIFEST = "manifest.json"


def prepare_folder(
    program: str,
    folder: Path,
    settings: Mapping[str, object],
    stages: Mapping[str, Callable[[Path], object]],
    finish: Callable[[], tuple[Mapping[str, object], Iterable[str]]],
) -> None:
    """Makes what is missing of a prepared folder. Only one run at a time works in it.

    Args:
        program: what its messages begin with.
        settings: everything that its content depends on, as JSON can say it.
        stages: by the names of their folders, in order; each fills the folder that it is given.
        finish: returns facts about the corpus for the manifest, and the names of the text files whose numbers of lines
            and SHA-256 the manifest has.
    """
    wanted = json.loads(json.dumps(dict(settings)))
    with only_run_in(folder):
        made, is_complete = [name for name in stages if (folder / name).exists()], (folder / MANIFEST).exists()
        recorded = {} if made else wanted  # {}: of something else
        if is_complete:
            recorded = read_json_object(folder / MANIFEST, "the manifest of a prepared corpus").get("settings")
        elif (folder / SETTINGS).exists():
            recorded = read_json_object(folder / SETTINGS, "the settings of a prepared corpus")
        if recorded != wanted:
            recorded = recorded if isinstance(recorded, dict) else {}  # of a manifest that something else wrote
            other = {key: recorded.get(key) for key in {**wanted, **recorded} if recorded.get(key) != wanted.get(key)}
            raise UserError(f"{folder} was prepared with other settings ({other}); remove it or name another folder")
        if is_complete:
            print(f"{program}: {folder} is complete")
            return
        write_json(folder / SETTINGS, settings)
        for name in [name for name in stages if name not in made]:
            print(f"{program}: {name}", file=sys.stderr)
            partial = folder / f".{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            stages[name](partial)
            partial.replace(folder / name)
        facts, files = finish()
        paths = {name: folder / name for name in sorted(files)}
        described = {name: {"lines": count_lines(path), "sha256": digest(path)} for name, path in paths.items()}
        write_json(folder / MANIFEST, {**facts, "settings": settings, "files": described})


def binarize(text: Path, folder: Path, workers: int, options: Sequence[str]) -> None:
    """Runs the fairseq-preprocess beside this Python on the files of `SPLITS` in `text`; quiet unless it fails."""
    command = [str(Path(sys.executable).with_name("fairseq-preprocess")), f"--destdir={folder.absolute()}"]
    # Relative paths, because it splits those of validation and test at commas.
    command += [*(f"--{split}pref={text.name}/{split}" for split in SPLITS), f"--workers={workers}", *options]
    # The process inherits the lock of the run, so that the next run waits for what is left of one that was killed.
    result = subprocess.run(
        command, cwd=text.absolute().parent, capture_output=True, text=True, errors="replace", close_fds=False
    )
    if result.returncode:
        said = (result.stderr or result.stdout).strip().splitlines() or [f"status {result.returncode}"]
        raise UserError(f"fairseq-preprocess failed, writing {folder} ({said[-1].strip()}); correct it and start again")


def dictionary_size(path: Path) -> int:
    """Number of entries of fairseq's dictionary, with the four special ones, which its file leaves out."""
    return 4 + count_lines(path)


def add_common_options(parser: argparse.ArgumentParser, *, source: str, vocabulary: str, output: str) -> None:
    """Adds the options that all preparations have, with their help."""
    parser.add_argument("--from", dest="source", type=Path, metavar="WHAT", help=source)
    parser.add_argument("--vocabulary", type=whole_number, metavar="N", help=vocabulary)
    parser.add_argument("--output", type=Path, metavar="DIR", help=f"the prepared folder (default: {output})")
    parser.add_argument(
        "--downloads", type=Path, default=Path("data/downloads"), metavar="DIR",
        help="where downloaded files are kept, for every preparation (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=whole_number, default=os.cpu_count(), metavar="N", help="processes (default: one per core)"
    )
