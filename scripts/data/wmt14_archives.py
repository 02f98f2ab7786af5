"""What WMT14 English-German consists of: the archives of the shared task, and the texts in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .digests import expected
from .fetch import fetch
from .texts import ParallelText, Text, wrong_archive

HOSTS = ("https://www.statmt.org", "http://statmt.org")


@dataclass(frozen=True)
class Archive:
    """A file of WMT's.

    Args:
        mirrors: its URLs.
        bytes: its size, where it is published.
        sha256, md5: its digest, in hexadecimal, likewise.
    """

    mirrors: Sequence[str]
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None

    def wrong(self, path: Path) -> str | None:
        """Says what is wrong with a file that should be it, if anything; without a digest, any archive will do."""
        if self.sha256:
            return expected("sha256", self.sha256)(path)
        return expected("md5", self.md5)(path) if self.md5 else wrong_archive(path)


def _statmt(path: str) -> list[str]:
    return [f"{host}/{path}" for host in HOSTS]


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


def download(folder: Path) -> None:
    """Gets the archives that a folder does not have yet.

    Raises:
        UserError: no mirror has one, or it is another file than it should be.
    """
    for name, archive in ARCHIVES.items():
        fetch(folder / name, archive.mirrors, archive.wrong)


def parallel_texts(folder: Path) -> Mapping[str, Sequence[ParallelText]]:
    """The texts of each split, of the archives in a folder.

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
    """A test set of an earlier year: plain in some of the archives, in SGML in others."""
    name = f"dev/newstest{year}"
    return ParallelText(
        Text(archive, (f"{name}.en", f"{name}-src.en.sgm")),
        Text(archive, (f"{name}.de", f"{name}-ref.de.sgm")),
        sentences,
    )
