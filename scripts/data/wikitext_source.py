"""Where the text of a WikiText corpus comes from: its mirrors, or what the user has of it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from agg_fairseq.errors import UserError

from .binarise import SPLITS
from .digests import expected, sha256
from .fetch import NoMirror, fetch
from .wikitext_archive import unpack
from .wikitext_corpora import Corpus, tokens_file
from .wikitext_parquet import parquet_files, rebuild, wrong_parquet


def download(corpus: Corpus, downloads: Path, folder: Path) -> None:
    """Writes the three files of a corpus into a folder, from its zip or, where that is out of reach, from the hub.

    Args:
        corpus: which.
        downloads: where the downloaded files are kept.
        folder: where the text goes.

    Raises:
        UserError: no mirror could be reached; or a downloaded file is damaged.
    """
    try:
        check = expected("sha256", corpus.zip_sha256)
        unpack(fetch(downloads / f"{corpus.archive}.zip", [corpus.zip_url], check), folder)
    except NoMirror as missing:
        print(f"wikitext: {missing}\nwikitext: trying the Hugging Face hub", file=sys.stderr)
        shards = downloads / corpus.archive
        for name in corpus.parquet_files():
            fetch(shards / name, [corpus.parquet_url(name)], wrong_parquet)
        rebuild(shards, folder)


def take(corpus: Corpus, given: Path, folder: Path) -> None:
    """Writes the three files of a corpus into a folder, from what the user has of it.

    Args:
        corpus: which.
        given: its zip; or a folder of its three files, or of the hub's parquet files, or of a folder of either, as
            unpacking the zip or copying the hub's repository makes it.
        folder: where the text goes.

    Raises:
        UserError: it has none of these, or they are damaged.
    """
    files = _files(corpus, given)
    if given.is_file():
        unpack(given, folder)
    elif files[0].suffix == ".parquet":
        rebuild(files[0].parent, folder)
    else:
        for file in files:
            shutil.copyfile(file, folder / file.name)


def digests(corpus: Corpus, given: Path) -> dict[str, str]:
    """By what the user has of a corpus is known, wherever it lies: the SHA-256 of its files, by their names.

    Raises:
        UserError: it is nothing that `take` takes.
    """
    return {file.name: sha256(file) for file in _files(corpus, given)}


def _files(corpus: Corpus, given: Path) -> list[Path]:
    """The zip; or the three files; or the parquet files."""
    if given.is_file():
        return [given]
    for place in (given, given / corpus.folder, given / corpus.archive):
        files = [place / tokens_file(split) for split in SPLITS]
        if all(file.is_file() for file in files):
            return files
        if files := parquet_files(place):
            return files
    raise UserError(
        f"--from: found neither a zip at {given} nor {', '.join(map(tokens_file, SPLITS))} or parquet files in it; "
        f"expected {corpus.name}"
    )
