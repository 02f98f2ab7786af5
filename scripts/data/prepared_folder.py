"""How every corpus is prepared: in one folder, stage by stage, with a manifest that is written last.

Each stage fills a folder of its own (`text`, `data-bin`, …), which appears whole or not at all and is skipped where it
is there already. So a preparation that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from agg_fairseq.errors import UserError
from agg_fairseq.files import write_json
from scripts.command import writing

from .download import sha256
from .locks import only_run_in
from .text_files import count_lines

SPLITS = ("train", "valid", "test")
SETTINGS = "settings.json"
MANIFEST = "manifest.json"
SPECIAL = 4
"""Entries of every fairseq dictionary that its file leaves out: beginning, padding, end, unknown."""


def prepare_folder(
    program: str,
    folder: Path,
    settings: Callable[[], Mapping[str, object]],
    stages: Mapping[str, Callable[[Path], object]],
    finish: Callable[[], None],
) -> None:
    """Makes what is missing of a prepared folder. Only one run at a time works in it.

    Args:
        program: what its messages begin with.
        folder: the prepared folder.
        settings: returns everything that the content depends on, as JSON can say it; called when no other run is at
            work any more.
        stages: by the names of their folders, in order; each fills the folder that it is given.
        finish: writes the manifest.

    Raises:
        UserError: the folder has other settings; or a stage failed, from which the next run goes on.
    """
    with only_run_in(folder), explained_if_lost():
        wanted = settings()
        if is_complete(folder, wanted):
            print(f"{program}: {folder} is complete")
            return
        for name, make in stages.items():
            print(f"{program}: {name}", file=sys.stderr)
            stage(folder / name, wanted, make)
        finish()


def stage(folder: Path, settings: Mapping[str, object], make: Callable[[Path], object]) -> bool:
    """Lets `make` fill an empty folder beside `folder`, and renames it when it is complete.

    Args:
        folder: exists if and only if it is complete.
        settings: everything that its content depends on, as JSON can say it.
        make: fills the folder that it is given.

    Returns:
        Whether anything had to be made.

    Raises:
        UserError: the folder was made with other settings.
    """
    if is_made(folder, settings):
        return False
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with writing(partial):
        make(partial)
    (partial / SETTINGS).write_text(json.dumps(dict(settings), indent=2) + "\n", encoding="utf-8")
    partial.replace(folder)
    return True


def is_made(folder: Path, settings: Mapping[str, object]) -> bool:
    """Whether a stage has made its folder.

    Raises:
        UserError: something else made it, or it has other settings.
    """
    if not folder.exists():
        return False
    try:
        found = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{folder}: found no {SETTINGS} in it, so it is not of this script, or damaged; remove it or name another "
            "folder"
        ) from error
    _check_same(folder, found, settings)
    return True


def is_complete(folder: Path, settings: Mapping[str, object]) -> bool:
    """Whether a folder was prepared to its end: it has a manifest.

    Args:
        folder: may be missing.
        settings: what it should be prepared with, as JSON can say it.

    Raises:
        UserError: it was prepared with other settings.
    """
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["settings"]
    except FileNotFoundError:
        return False
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise UserError(f"{folder / MANIFEST}: found no manifest of this script; name another folder") from error
    _check_same(folder, found, settings)
    return True


def _check_same(folder: Path, found: object, settings: Mapping[str, object]) -> None:
    wanted = json.loads(json.dumps(dict(settings)))
    if not isinstance(found, dict):
        raise UserError(
            f"{folder}: found the settings {found!r}; expected those of this script; remove it or name another folder"
        )
    if found != wanted:
        other = {key: found.get(key) for key in sorted({*found, *wanted}) if found.get(key) != wanted.get(key)}
        raise UserError(f"{folder} was prepared with other settings ({other}); remove it or name another folder")


@contextlib.contextmanager
def explained_if_lost() -> Iterator[None]:
    """Replaces a FileNotFoundError by the remedy, where a file of an earlier stage was removed afterwards."""
    try:
        yield
    except FileNotFoundError as error:
        folder = Path(error.filename or "").parent
        if not (folder / SETTINGS).is_file():
            raise
        raise UserError(
            f"found no {error.filename}; expected what an earlier stage made; remove the folder {folder} and run it "
            "again"
        ) from error


def write_manifest(
    folder: Path, settings: Mapping[str, object], facts: Mapping[str, object], files: Iterable[Path]
) -> None:
    """Writes the manifest, whole or not at all.

    Args:
        folder: the prepared folder, in which everything is in its place.
        settings: what it was prepared with.
        facts: about the corpus, by their names in the manifest.
        files: text files of the folder; the manifest has their numbers of lines and SHA-256.
    """
    described = {
        str(file.relative_to(folder)): {"lines": count_lines(file), "sha256": sha256(file)} for file in sorted(files)
    }
    write_json(folder / MANIFEST, {**facts, "settings": dict(settings), "files": described})


def binarize(text: Path, folder: Path, workers: int, options: Sequence[str]) -> None:
    """Runs the fairseq-preprocess that is installed beside this Python; it is quiet unless it fails.

    Args:
        text: folder of the files of `SPLITS`, with the languages as suffixes if there are any.
        folder: where to write.
        workers: number of processes.
        options: further options of fairseq-preprocess.

    Raises:
        UserError: it failed; the message has the last line that it printed.
    """
    program = Path(sys.executable).with_name("fairseq-preprocess")
    # Relative paths, because it splits those of validation and test at commas.
    prefixes = [f"--{split}pref={text.name}/{split}" for split in SPLITS]
    command = [str(program), *prefixes, f"--destdir={folder.absolute()}", f"--workers={workers}", *options]
    try:
        # The process inherits the lock of the run, so that the next run waits for what is left of one that was killed.
        result = subprocess.run(
            command, cwd=text.absolute().parent, capture_output=True, text=True, errors="replace", close_fds=False
        )
    except FileNotFoundError as error:
        raise UserError(f"found no {program}; expected fairseq in this environment; run scripts/setup.sh") from error
    if result.returncode:
        said = (result.stderr or result.stdout).strip().splitlines() or [f"status {result.returncode}"]
        raise UserError(f"fairseq-preprocess failed, writing {folder} ({said[-1].strip()}); mend that and run it again")


def dictionary_size(path: Path) -> int:
    """Number of entries of a dictionary that fairseq-preprocess wrote, the special ones included."""
    with open(path, "rb") as file:
        return SPECIAL + sum(1 for _ in file)


def positive(text: str) -> int:
    """A whole number from 1, as a type of argparse."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


positive.__name__ = "whole number from 1"  # what argparse calls it in its message


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--downloads`, `--workers` and `--dry-run`."""
    parser.add_argument(
        "--downloads",
        type=Path,
        default=Path("data/downloads"),
        metavar="DIR",
        help="where downloaded files are kept, for every preparation (default: %(default)s)",
    )
    parser.add_argument(
        "--workers", type=positive, default=os.cpu_count(), metavar="N", help="processes (default: one per core)"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would be done, and write nothing but this repository's .venv, if it is missing",
    )
