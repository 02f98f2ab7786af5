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

from .download import expected, fetch, sha256
from .prepared_folder import SPLITS
from .text_files import ParallelText, Text, wrong_archive

LANGUAGES = ("en", "de")
WMT14 = "wmt14_en_de"


@dataclass(frozen=True)
class Archive:
    """An archive of the shared task.

    Args:
        mirrors: its URLs.
        bytes: its size, if that is published.
        sha256, md5: its digest in hexadecimal, if that is published.
    """

    mirrors: Sequence[str]
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None

    def wrong(self, path: Path) -> str | None:
        """Returns what is wrong with a file that should be this one; without a digest, any archive will do."""
        if self.sha256:
            return expected("sha256", self.sha256)(path)
        return expected("md5", self.md5)(path) if self.md5 else wrong_archive(path)


def _statmt(path: str) -> list[str]:
    return [f"{host}/{path}" for host in ("https://www.statmt.org", "http://statmt.org")]


EUROPARL, COMMON_CRAWL, NEWS_COMMENTARY, DEV, TEST = (
    "training-parallel-europarl-v7.tgz",
    "training-parallel-commoncrawl.tgz",
    "training-parallel-nc-v9.tgz",
    "dev.tgz",
    "test-full.tgz",
)
# Sizes and SHA-256: TensorFlow Datasets, url_checksums/wmt14_translate.txt. MD5: sacrebleu's table of data sets. Each
# year's shared task has a dev.tgz of its own, with the test sets of earlier years in it, so that has no digest here.
ARCHIVES: Mapping[str, Archive] = {
    EUROPARL: Archive(
        _statmt(f"wmt13/{EUROPARL}"),
        bytes=657_632_379,
        sha256="0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    COMMON_CRAWL: Archive(
        _statmt(f"wmt13/{COMMON_CRAWL}"),
        bytes=918_311_367,
        sha256="c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    NEWS_COMMENTARY: Archive(
        _statmt(f"wmt14/{NEWS_COMMENTARY}"),
        bytes=80_418_416,
        sha256="cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
    DEV: Archive(
        [
            *_statmt(f"wmt14/{DEV}"),
            *(f"https://data.statmt.org/wmt{year}/translation-task/{DEV}" for year in (17, 19)),
        ]
    ),
    TEST: Archive(_statmt(f"wmt14/{TEST}"), md5="a8cd784e006feb32ac6f3d9ec7eb389a"),
}


def texts_of_archives(folder: Path) -> Mapping[str, Sequence[ParallelText]]:
    """The texts of each split, in the archives of a folder.

    Validation is newstest2012 and newstest2013, as in Yu et al. (2021), Sec. 4.
    """
    return {
        "train": [
            _bitext(folder / EUROPARL, "training/europarl-v7.de-en"),
            _bitext(folder / COMMON_CRAWL, "commoncrawl.de-en"),
            _bitext(folder / NEWS_COMMENTARY, "training/news-commentary-v9.de-en"),
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


def _bitext(archive: Path, name: str) -> ParallelText:
    return ParallelText(Text(archive, (f"{name}.en",)), Text(archive, (f"{name}.de",)))


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
        is_official: whether it is WMT14 as it was published, by all digests that are known.
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
            fetch(folder / name, archive.mirrors, archive.wrong)
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
        others = {path.name: wrong for path in archives if (wrong := ARCHIVES[path.name].wrong(path))}
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
