"""Where a parallel corpus comes from: WMT's mirrors, or what the user has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agg_fairseq.errors import UserError

from .binarise import SPLITS
from .digests import sha256
from .texts import ParallelText, Text
from .wmt14_archives import ARCHIVES, download, parallel_texts

LANGUAGES = ("en", "de")
WMT14 = "wmt14_en_de"


@dataclass(frozen=True)
class Source:
    """A corpus that may not be there yet.

    Args:
        corpus: its name.
        is_official: whether it is WMT14 as it was published, by all digests that are known.
        settings: by what it is known before it is read.
        plan: what there is to get or to read, a line for each.
        splits: gets what is missing, and returns the texts of each split, one after another.
    """

    corpus: str
    is_official: bool
    settings: Mapping[str, str]
    plan: Sequence[str]
    splits: Callable[[], Mapping[str, Sequence[ParallelText]]]


def downloaded(folder: Path) -> Source:
    """WMT14, from its mirrors.

    Args:
        folder: of the archives.
    """

    def splits() -> Mapping[str, Sequence[ParallelText]]:
        download(folder)
        return parallel_texts(folder)

    return Source(WMT14, True, {"corpus": WMT14}, [_planned(folder / name) for name in ARCHIVES], splits)


def _planned(path: Path) -> str:
    archive = ARCHIVES[path.name]
    size = f" ({archive.bytes / 1e6:,.0f} MB)" if archive.bytes else ""
    return f"have {path}" if path.exists() else f"download {path}{size} from {' or '.join(archive.mirrors)}"


def given(folder: Path) -> Source:
    """What somebody put into a folder: plain text, {train,valid,test}.{en,de}, or else WMT's archives.

    Raises:
        UserError: it has neither.
    """
    files = [folder / f"{split}.{language}" for split in SPLITS for language in LANGUAGES]
    archives = [folder / name for name in ARCHIVES]
    missing = [[path.name for path in paths if not path.is_file()] for paths in (files, archives)]
    if not missing[0]:
        return _source(folder.resolve().name, False, files, partial(_plain_texts, folder))
    if not missing[1]:
        return _source(WMT14, not _warn_of_others(archives), archives, partial(parallel_texts, folder))
    raise UserError(
        f"--from: found no {', '.join(missing[0])} in {folder}, nor {', '.join(missing[1])}; expected the six texts or "
        "the five archives; put the archives that you have into --downloads to download only the others"
    )


def _source(
    corpus: str, is_official: bool, paths: Sequence[Path], splits: Callable[[], Mapping[str, Sequence[ParallelText]]]
) -> Source:
    """Files that are there, known by their SHA-256."""
    settings = {path.name: sha256(path) for path in paths}
    return Source(corpus, is_official, settings, [f"read {path}" for path in paths], splits)


def _plain_texts(folder: Path) -> Mapping[str, Sequence[ParallelText]]:
    return {
        split: [ParallelText(*(Text(folder / f"{split}.{language}") for language in LANGUAGES))] for split in SPLITS
    }


def _warn_of_others(archives: Sequence[Path]) -> int:
    """How many archives are not WMT's: what somebody gives may be a sample, but not unnoticed."""
    others = {path.name: wrong for path in archives if (wrong := ARCHIVES[path.name].wrong(path))}
    for name, wrong in others.items():
        print(f"wmt14: warning: {name} is not WMT's: {wrong}; going on with it", file=sys.stderr)
    return len(others)
