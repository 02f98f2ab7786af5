"""Where a parallel corpus comes from: the mirrors of WMT14, or what the user has.

WMT14 English-German consists of five archives of the shared task, with the texts in them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agg_fairseq.errors import UserError

from .download import fetch
from .files import Text, digest, wrong_digest
from .prepared_folder import SPLITS

LANGUAGES = ("en", "de")
WMT14 = "wmt14_en_de"
STATMT = "https://www.statmt.org"
HUB = "https://huggingface.co/datasets/wmt"
"""Copies of the archives of the training text in the organization `wmt` of the Hugging Face hub."""
OF_WMT13 = (f"{STATMT}/wmt13", f"{HUB}/wmt13/resolve/8e5ec410581dd0ae8039a038c2ae866915e2a47c")
OF_WMT14 = (f"{STATMT}/wmt14", f"{HUB}/wmt14-data/resolve/0e64fcc0d910c9e1c5c2ae91541096155d0f2e2f")
EUROPARL, COMMON_CRAWL, NEWS_COMMENTARY, DEV, TEST = (
    "training-parallel-europarl-v7.tgz",
    "training-parallel-commoncrawl.tgz",
    "training-parallel-nc-v9.tgz",
    "dev.tgz",
    "test-full.tgz",
)
MIRRORS: Mapping[str, Sequence[str]] = {
    EUROPARL: OF_WMT13,
    COMMON_CRAWL: OF_WMT13,
    NEWS_COMMENTARY: OF_WMT14,
    DEV: [OF_WMT14[0], *(f"https://data.statmt.org/wmt{year}/translation-task" for year in (17, 19))],
    TEST: OF_WMT14[:1],
}
"""The folders in which each archive is."""
# SHA-256: TensorFlow Datasets, url_checksums/wmt14_translate.txt. MD5 of the test sets: sacrebleu's table of data sets.
# Each year's shared task has a dev.tgz of its own, with the test sets of earlier years in it: the digests are those of
# 2014, 2017 and 2019, as public recipes of training data have them.
DIGESTS: Mapping[str, Sequence[str]] = {
    EUROPARL: ["0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"],
    COMMON_CRAWL: ["c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"],
    NEWS_COMMENTARY: ["cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"],
    DEV: [
        "88ba3fc60b2278d59277122e1c7dd6e7",
        "9d5ff04a28496b7796904ea65e50e3837bab14dbdca88b1e063105f17513dca9",
        "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
    ],
    TEST: ["a8cd784e006feb32ac6f3d9ec7eb389a"],
}

ParallelText = tuple[Text, Text]  # a text in English and in German, with as many lines in each
Texts = Mapping[str, Sequence[ParallelText]]  # by split


@dataclass(frozen=True)
class Source:
    """A parallel corpus."""

    corpus: str  # its name
    is_official: bool  # whether it is made of the archives of WMT14 as they were published, by their digests
    settings: Mapping[str, str]  # what identifies it
    texts: Callable[[], Texts]  # downloads them first, if need be


def downloaded(folder: Path) -> Source:
    """WMT14, from its mirrors; `folder` has or gets the archives."""

    def texts() -> Texts:
        for name, folders in MIRRORS.items():
            fetch(folder / name, [f"{mirror}/{name}" for mirror in folders], DIGESTS[name])
        return texts_of_archives(folder)

    return Source(WMT14, True, {"corpus": WMT14}, texts)


def given(folder: Path) -> Source:
    """What the user has in a folder: plain text, {train,valid,test}.{en,de}, or else WMT's archives."""
    names = [f"{split}.{language}" for split in SPLITS for language in LANGUAGES]
    missing = [[name for name in of_form if not (folder / name).is_file()] for of_form in (names, MIRRORS)]
    if all(missing):
        files, archives = map(", ".join, missing)
        raise UserError(f"--from: found no {files} in {folder}, nor {archives}; expected all of one kind")
    if not missing[0]:
        texts = {split: [(Text(folder / f"{split}.en"), Text(folder / f"{split}.de"))] for split in SPLITS}
        return Source(folder.resolve().name, False, {name: digest(folder / name) for name in names}, lambda: texts)
    others = {name: wrong for name in MIRRORS if (wrong := wrong_digest(folder / name, DIGESTS[name]))}
    for name, wrong in others.items():  # it may be a sample, but not unnoticed
        print(f"wmt14: warning: {name} is not WMT's: {wrong}; going on with it", file=sys.stderr)
    settings = {name: digest(folder / name) for name in MIRRORS}
    return Source(WMT14, not others, settings, lambda: texts_of_archives(folder))


def texts_of_archives(folder: Path) -> Texts:
    """The texts of each split, in the archives of a folder.

    Validation is newstest2012 and newstest2013, as in Yu et al. (2021), Sec. 4: plain text in some of the versions of
    dev.tgz, SGML in others.
    """

    def pair(archive: str, *members: str) -> ParallelText:
        names = ([member.format(*side) for member in members] for side in zip(LANGUAGES, ("src", "ref"), strict=True))
        source, target = (Text(folder / archive, tuple(of_side)) for of_side in names)
        return source, target

    return {
        "train": [
            pair(EUROPARL, "training/europarl-v7.de-en.{0}"),
            pair(COMMON_CRAWL, "commoncrawl.de-en.{0}"),
            pair(NEWS_COMMENTARY, "training/news-commentary-v9.de-en.{0}"),
        ],
        "valid": [
            pair(DEV, f"dev/newstest{year}.{{0}}", f"dev/newstest{year}-{{1}}.{{0}}.sgm") for year in (2012, 2013)
        ],
        "test": [pair(TEST, "test-full/newstest2014-deen-{1}.{0}.sgm")],
    }
