"""Where the text of a WikiText corpus comes from: its mirrors, or what the user has of it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from agg_fairseq.errors import UserError

from .binarise import SPLITS
from .fetch import NoMirror, fetch
from .wikitext_archive import unpack
from .wikitext_corpora import Corpus, tokens_file
from .wikitext_parquet import has_parquet, rebuild


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
        unpack(fetch(downloads / f"{corpus.archive}.zip", [corpus.zip_url], sha256=corpus.zip_sha256), folder)
    except NoMirror as missing:
        print(f"wikitext: {missing}\nwikitext: trying the Hugging Face hub", file=sys.stderr)
        shards = downloads / corpus.archive
        for name in corpus.parquet_files():
            fetch(shards / name, [corpus.parquet_url(name)])
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
    if given.is_file():
        unpack(given, folder)
        return
    for place in (given, given / corpus.folder, given / corpus.archive):
        if all((place / tokens_file(split)).is_file() for split in SPLITS):
            for split in SPLITS:
                shutil.copyfile(place / tokens_file(split), folder / tokens_file(split))
            return
        if has_parquet(place):
            rebuild(place, folder)
            return
    raise UserError(
        f"--from: found neither a zip at {given} nor {', '.join(map(tokens_file, SPLITS))} or parquet files in it; "
        f"expected {corpus.name}"
    )
