"""Where a parallel corpus comes from: the mirrors of WMT14, or what the user has.

WMT14 English-German consists of five archives of the shared task, with the texts in them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agg_fairseq.errors import UserError

from .download import Check, expected, fetch, sha256
from .prepared_folder import SPLITS
from .text_files import ParallelText, Text

LANGUAGES = ("en", "de")
WMT14 = "wmt14_en_de"


@dataclass(frozen=True)
class Archive:
    """An archive of the shared task.

    Args:
        mirrors: its URLs.
        digests: MD5 or SHA-256 of each of its versions, in hexadecimal.
        bytes: its size, if that is published.
    """

    mirrors: Sequence[str]
    digests: Sequence[str]
    bytes: int | None = None

    @property
    def check(self) -> Check:
        """Whether a file is one of its versions."""
        return expected(*self.digests)


def _statmt(path: str) -> list[str]:
    return [f"{host}/{path}" for host in ("https://www.statmt.org", "http://statmt.org")]


HUB = "https://huggingface.co/datasets/wmt"
WMT13_HUB = f"{HUB}/wmt13/resolve/8e5ec410581dd0ae8039a038c2ae866915e2a47c"
WMT14_HUB = f"{HUB}/wmt14-data/resolve/0e64fcc0d910c9e1c5c2ae91541096155d0f2e2f"
"""Copies of the archives of the training text in the organization `wmt` of the Hugging Face hub."""


EUROPARL, COMMON_CRAWL, NEWS_COMMENTARY, DEV, TEST = (
    "training-parallel-europarl-v7.tgz",
    "training-parallel-commoncrawl.tgz",
    "training-parallel-nc-v9.tgz",
    "dev.tgz",
    "test-full.tgz",
)
# Sizes and SHA-256: TensorFlow Datasets, url_checksums/wmt14_translate.txt. MD5 of the test sets: sacrebleu's table of
# data sets. Each year's shared task has a dev.tgz of its own, with the test sets of earlier years in it: the digests
# are those of 2014, 2017 and 2019, as public recipes of training data have them.
ARCHIVES: Mapping[str, Archive] = {
    EUROPARL: Archive(
        [*_statmt(f"wmt13/{EUROPARL}"), f"{WMT13_HUB}/{EUROPARL}"],
        ["0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"],
        bytes=657_632_379,
    ),
    COMMON_CRAWL: Archive(
        [*_statmt(f"wmt13/{COMMON_CRAWL}"), f"{WMT13_HUB}/{COMMON_CRAWL}"],
        ["c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"],
        bytes=918_311_367,
    ),
    NEWS_COMMENTARY: Archive(
        [*_statmt(f"wmt14/{NEWS_COMMENTARY}"), f"{WMT14_HUB}/{NEWS_COMMENTARY}"],
        ["cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"],
        bytes=80_418_416,
    ),
    DEV: Archive(
        [
            *_statmt(f"wmt14/{DEV}"),
            *(f"https://data.statmt.org/wmt{year}/translation-task/{DEV}" for year in (17, 19)),
        ],
        [
            "88ba3fc60b2278d59277122e1c7dd6e7",
            "9d5ff04a28496b7796904ea65e50e3837bab14dbdca88b1e063105f17513dca9",
            "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
        ],
    ),
    TEST: Archive(_statmt(f"wmt14/{TEST}"), ["a8cd784e006feb32ac6f3d9ec7eb389a"]),
}


def texts_of_archives(folder: Path) -> Mapping[str, Sequence[ParallelText]]:
    """The texts of each split, in the archives of a folder.

    Validation is newstest2012 and newstest2013, as in Yu et al. (2021), Sec. 4.
    """
    return {
        "train": [
            _bitext(folder / EUROPARL, "training/europarl-v7.de-en", 1_920_209),
            _bitext(folder / COMMON_CRAWL, "commoncrawl.de-en", 2_399_123),
            _bitext(folder / NEWS_COMMENTARY, "training/news-commentary-v9.de-en", 201_288),
        ],
        "valid": [_news(folder / DEV, 2012, 3003), _news(folder / DEV, 2013, 3000)],
        "test": [
            ParallelText(
                Text(folder / TEST, ("test-full/newstest2014-deen-src.en.sgm",)),
                Text(folder / TEST, ("test-full/newstest2014-deen-ref.de.sgm",)),
                3003,
            )
        ],
    }


def _bitext(archive: Path, name: str, sentences: int) -> ParallelText:
    return ParallelText(Text(archive, (f"{name}.en",)), Text(archive, (f"{name}.de",)), sentences)


def _news(archive: Path, year: int, sentences: int) -> ParallelText:
    """A test set of an earlier year: plain text in some of the archives, SGML in others."""
    name = f"dev/newstest{year}"
    return ParallelText(
        Text(archive, (f"{name}.en", f"{name}-src.en.sgm")),
        Text(archive, (f"{name}.de", f"{name}-ref.de.sgm")),
        sentences,
    )


@dataclass(frozen=True)
class Source:
    """A parallel corpus that may have to be downloaded first.

    Args:
        corpus: its name.
        is_official: whether it is made of the archives of WMT14 as they were published, by their digests.
        settings: what identifies it before it is read.
        plan: what will be downloaded or read, one line each.
        splits: downloads what is missing, and returns the texts of each split.
    """

    corpus: str
    is_official: bool
    settings: Mapping[str, str]
    plan: Sequence[str]
    splits: Callable[[], Mapping[str, Sequence[ParallelText]]]


def downloaded(folder: Path) -> Source:
    """WMT14, from its mirrors; `folder` has or gets the archives."""

    def splits() -> Mapping[str, Sequence[ParallelText]]:
        for name, archive in ARCHIVES.items():
            fetch(folder / name, archive.mirrors, archive.check)
        return texts_of_archives(folder)

    plan = []
    for name, archive in ARCHIVES.items():
        path, size = folder / name, f" ({archive.bytes / 1e6:,.0f} MB)" if archive.bytes else ""
        found = f"download {path}{size} from {' or '.join(archive.mirrors)}"
        plan.append(f"have {path}" if path.exists() else found)
    return Source(WMT14, True, {"corpus": WMT14}, plan, splits)


def given(folder: Path) -> Source:
    """What the user has in a folder: plain text, {train,valid,test}.{en,de}, or else WMT's archives.

    Raises:
        UserError: the folder has neither.
    """
    files = [folder / f"{split}.{language}" for split in SPLITS for language in LANGUAGES]
    archives = [folder / name for name in ARCHIVES]
    missing = [[path.name for path in paths if not path.is_file()] for paths in (files, archives)]
    if not missing[0]:
        texts = {
            split: [ParallelText(*(Text(folder / f"{split}.{language}") for language in LANGUAGES))] for split in SPLITS
        }
        return _given_source(folder.resolve().name, False, files, lambda: texts)
    if not missing[1]:
        others = {path.name: wrong for path in archives if (wrong := ARCHIVES[path.name].check(path))}
        for name, wrong in others.items():  # it may be a sample, but not unnoticed
            print(f"wmt14: warning: {name} is not WMT's: {wrong}; going on with it", file=sys.stderr)
        return _given_source(WMT14, not others, archives, partial(texts_of_archives, folder))
    raise UserError(
        f"--from: found no {', '.join(missing[0])} in {folder}, nor {', '.join(missing[1])}; expected the six texts or "
        "the five archives; put the archives that you have into --downloads to download only the others"
    )


def _given_source(
    corpus: str, is_official: bool, paths: Sequence[Path], splits: Callable[[], Mapping[str, Sequence[ParallelText]]]
) -> Source:
    settings = {path.name: sha256(path) for path in paths}  # what the text is, wherever it is
    return Source(corpus, is_official, settings, [f"read {path}" for path in paths], splits)
