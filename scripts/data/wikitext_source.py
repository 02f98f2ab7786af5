"""Where the text of a WikiText corpus comes from: its mirrors, or what the user has of it.

It comes in three forms: the three text files; the zip of the authors, which has them; and the parquet files of the
Hugging Face hub, with one row per line.
"""

from __future__ import annotations

import errno
import lzma
import re
import shutil
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from agg_fairseq.errors import UserError, first_line
from scripts.command import writing

from .download import NoMirror, expected, fetch, sha256
from .prepared_folder import SPLITS
from .wikitext_corpora import PARQUET_SPLITS, Corpus, tokens_file

BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, ValueError)
"""What zipfile raises for a file that is truncated, damaged, encrypted or compressed by an unknown method."""
EMPTY_LINE = " \n"
"""What an empty row of the hub's files was before the hub's own script emptied it."""


def download(corpus: Corpus, downloads: Path, folder: Path) -> list[Path]:
    """Writes the three files of a corpus into a folder, from its zip or, if that cannot be reached, from the hub.

    Args:
        corpus: which.
        downloads: where the downloaded files are kept.
        folder: where the text goes.

    Returns:
        The downloaded files.

    Raises:
        UserError: no mirror could be reached; or a downloaded file is damaged.
    """
    try:
        check = expected(corpus.zip_sha256)
        archive = fetch(downloads / f"{corpus.archive}.zip", [corpus.zip_url], check)
        unpack(archive, folder)
        return [archive]
    except NoMirror as missing:
        print(f"wikitext: {missing}\nwikitext: trying the Hugging Face hub", file=sys.stderr)
        shards = downloads / corpus.archive
        names = corpus.parquet_files()
        files = [fetch(shards / name, [corpus.parquet_url(name)], wrong_parquet) for name in names]
        rebuild(shards, folder)
        return files


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
    files = _given_files(corpus, given)
    if given.is_file():
        unpack(given, folder)
    elif files[0].suffix == ".parquet":
        rebuild(files[0].parent, folder)
    else:
        for file in files:
            shutil.copyfile(file, folder / file.name)


def digests(corpus: Corpus, given: Path) -> dict[str, str]:
    """SHA-256 of the files that `take` would read, by their names: what identifies them wherever they are.

    Raises:
        UserError: they are nothing that `take` takes.
    """
    return {file.name: sha256(file) for file in _given_files(corpus, given)}


def _given_files(corpus: Corpus, given: Path) -> list[Path]:
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


def unpack(archive: Path, folder: Path) -> None:
    """Writes the files of the three splits into a folder, and nothing else, wherever the archive would have them.

    Raises:
        UserError: the archive cannot be read, or does not have each of them once.
    """
    try:
        with zipfile.ZipFile(archive) as members:
            for split in SPLITS:
                with members.open(_only_member(members, tokens_file(split))) as source:
                    path = folder / tokens_file(split)
                    with writing(path), open(path, "wb") as target:
                        shutil.copyfileobj(source, target)
    except (*BROKEN_ZIP, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # these are of the archive's bytes
            raise
        raise UserError(
            f"{archive}: unreadable ({first_line(error)}); expected the zip of a WikiText corpus; remove it, get it "
            "anew and run it again"
        ) from error


def _only_member(members: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    found = [member for member in members.infolist() if PurePosixPath(member.filename).name == name]
    if len(found) != 1:
        raise UserError(
            f"{members.filename}: found {len(found)} files named {name}; expected one, as in WikiText's zip"
        )
    return found[0]


def parquet_files(folder: Path) -> list[Path]:
    """The parquet files of a WikiText corpus in a folder, named as on the hub, in order."""
    return [path for split in SPLITS for path in sorted(folder.glob(f"{PARQUET_SPLITS[split]}-*-of-*.parquet"))]


def wrong_parquet(path: Path) -> str | None:
    """Returns what is wrong with a file that should be parquet; None if nothing is. Rows are not read."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path):
            return None
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        return f"found no parquet file ({first_line(error)}); expected one"


def rebuild(source: Path, folder: Path) -> None:
    """Writes the files of the three splits as they are in WikiText's zip.

    Args:
        source: folder of the parquet files, named as on the hub (`train-00000-of-00002.parquet`).
        folder: where they go.

    Raises:
        UserError: a file is missing, cannot be read, or is of something else.
    """
    for split in SPLITS:
        path = folder / tokens_file(split)
        with writing(path), open(path, "w", encoding="utf-8", newline="\n") as target:
            for shard in _shards(source, PARQUET_SPLITS[split]):
                target.writelines(_lines(shard))


def _shards(source: Path, split: str) -> list[Path]:
    found = sorted(source.glob(f"{split}-*-of-*.parquet"))
    counts = {int(count[1]) for path in found if (count := re.search(r"-of-(\d+)\.parquet$", path.name))}
    if counts != {len(found)}:
        raise UserError(
            f"{source}: found {[path.name for path in found]} of the parquet files of {split}; expected all of them, "
            "as their names number them"
        )
    return found


def _lines(shard: Path) -> Iterator[str]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(shard, page_checksum_verification=True) as file:  # where it has checksums
            for batch in file.iter_batches(columns=["text"]):
                for row in batch.column("text").cast("string").to_pylist():
                    if row and (row.count("\n") != 1 or not row.endswith("\n")):
                        raise UserError(
                            f"{shard}: found a row that is not a line ({row[:40]!r}); expected those of "
                            "Salesforce/wikitext"
                        )
                    yield row or EMPTY_LINE
    except (pyarrow.ArrowException, ValueError, KeyError, OSError) as error:
        raise UserError(
            f"{shard}: unreadable ({first_line(error)}); expected a parquet file with a column of text; remove it, get "
            "it anew and run it again"
        ) from error
