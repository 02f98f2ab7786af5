"""The WikiText corpora, version 1 (words, `<unk>`, ` @-@ `): where their text comes from, and how it is recognized.

The text comes in three forms: the three text files; the zip of the authors, which has them; and the parquet files of
the Hugging Face hub, with one row per line.
"""

from __future__ import annotations

import errno
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agg_fairseq.errors import UserError, first_line

from .download import NoMirror, fetch
from .files import digest, published
from .prepared_folder import SPLITS

PARQUET_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
"""What the splits are called on the Hugging Face hub."""
ZIPS = "https://wikitext.smerity.com"
"""Where their author keeps the archives; their first home, at s3.amazonaws.com, is closed."""
HUB = "https://huggingface.co/datasets/Salesforce/wikitext/resolve/b08601e04326c79dfdd32d625aee71d232d685c3"
"""The files of the Hugging Face hub, at one revision."""
MARKS = {"<unk>": "version 1, not the raw one, where rare words are <unk>", " @-@ ": "text in WikiText's tokens"}
"""Strings that occur in the training part of every WikiText of version 1, and what a text that has them is."""
EMPTY_LINE = " \n"  # what an empty row of the hub's files was before the hub's own script emptied it


def tokens_file(split: str) -> str:
    """What the file of a split is called in the archives."""
    return f"wiki.{split}.tokens"


@dataclass(frozen=True)
class Corpus:
    """A corpus."""

    name: str  # as people write it
    archive: str  # name of the zip, less the suffix; also of the folder of parquet files on the hub
    zip_sha256: str
    megabytes: int  # of the zip
    shards: int  # parquet files of the training part on the hub
    digests: Mapping[str, str]  # SHA-256 or SHA-1 of the text files by split
    tokenizer: str  # unless another is asked for
    gpt2_dictionary: int | None = None  # entries of fairseq's dictionary in GPT-2's sub-words, where a paper says so


# Zips: Hugging Face's datasets/wikitext/dataset_infos.json. Files: SHA-1 of those in the zips, by GluonNLP's
# data/corpora/wikitext.py; no SHA-256 of WikiText-103's was found in public. Validation and test parts of WikiText-2:
# SHA-256 of the copies in pytorch/examples, which many projects quote and of which GluonNLP's SHA-1 are too.
CORPORA: Mapping[str, Corpus] = {
    "wikitext103": Corpus(
        name="WikiText-103",
        archive="wikitext-103-v1",
        zip_sha256="242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
        megabytes=190,
        shards=2,
        digests={
            "train": "b7497e2dfe77e72cfef5e3dbc61b7b53712ac211",
            "valid": "c326ac59dc587676d58c422eb8a03e119582f92b",
            "test": "8a5befc548865cec54ed4273cf87dbbad60d1e47",
        },
        tokenizer="gpt2",
        gpt2_dictionary=44_256,  # Yu et al. (2022), Table 12
    ),
    "wikitext2": Corpus(
        name="WikiText-2",
        archive="wikitext-2-v1",
        zip_sha256="92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
        megabytes=4,
        shards=1,
        digests={
            "train": "863f29c46ef9d167fff4940ec821195882fe29d1",
            "valid": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "test": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        },
        tokenizer="words",
    ),
}


def download(corpus: Corpus, downloads: Path, folder: Path) -> None:
    """Writes the three files of a corpus into a folder, from its zip or, if that cannot be reached, from the hub."""
    shards = downloads / corpus.archive
    try:
        archive = downloads / f"{corpus.archive}.zip"
        unpack(fetch(archive, [f"{ZIPS}/{archive.name}"], published(corpus.zip_sha256)), folder)
    except NoMirror as missing:
        print(f"wikitext: {missing}\nwikitext: trying the Hugging Face hub", file=sys.stderr)
        for split, count in {"train": corpus.shards, "valid": 1, "test": 1}.items():
            for number in range(count):
                name = f"{PARQUET_SPLITS[split]}-{number:05}-of-{count:05}.parquet"
                fetch(shards / name, [f"{HUB}/{corpus.archive}/{name}"], lambda path: None)  # no digest is published
        rebuild(shards, folder)
    if others := differences(corpus, folder):
        raise UserError(f"{'; '.join(others)}; remove {shards}* and run it again")


def take(corpus: Corpus, given: Path, folder: Path) -> None:
    """Writes the three files of a corpus into a folder, from what the user has of it: any of the three forms.

    A text that is not the published one, such as a sample of it, is accepted with a warning.
    """
    files = given_files(corpus, given)
    if given.is_file():
        unpack(given, folder)
    elif files[0].suffix == ".parquet":
        rebuild(given, folder)
    else:
        for file in files:
            shutil.copyfile(file, folder / file.name)
    for mark, said in MARKS.items():
        with open(folder / tokens_file("train"), "rb") as file:
            if not any(mark.encode() in line for line in file):
                raise UserError(f"{tokens_file('train')}: found no '{mark}' in it; expected {said}")
    for other in differences(corpus, folder):
        print(f"wikitext: warning: {other}; going on with it", file=sys.stderr)


def differences(corpus: Corpus, folder: Path) -> list[str]:
    """A line for each of the three files in a folder that is not the published one."""
    wrong = {split: published(corpus.digests[split])(folder / tokens_file(split)) for split in SPLITS}
    return [f"{tokens_file(split)} is not that of {corpus.name}: {text}" for split, text in wrong.items() if text]


def digests(corpus: Corpus, given: Path) -> dict[str, str]:
    """SHA-256 of the files that `take` would read, by their names: what identifies them wherever they are."""
    return {file.name: digest(file) for file in given_files(corpus, given)}


def given_files(corpus: Corpus, given: Path) -> list[Path]:
    """The zip; or the three files of a folder; or its parquet files."""
    if given.is_file():
        return [given]
    files = [given / tokens_file(split) for split in SPLITS]
    if all(file.is_file() for file in files):
        return files
    shards = [shard for split in SPLITS for shard in _shards(given, split)]
    if not shards:
        raise UserError(
            f"--from: found neither a zip at {given} nor {', '.join(map(tokens_file, SPLITS))} or parquet files in it; "
            f"expected {corpus.name}"
        )
    return shards


def unpack(archive: Path, folder: Path) -> None:
    """Writes the files of the three splits into a folder, and nothing else, wherever the archive would have them."""
    try:
        with zipfile.ZipFile(archive) as members:
            for split in SPLITS:
                name = tokens_file(split)
                matching = [member for member in members.infolist() if PurePosixPath(member.filename).name == name]
                if len(matching) != 1:
                    raise UserError(f"{archive}: found {len(matching)} files named {name}; expected one")
                with members.open(matching[0]) as source, open(folder / name, "wb") as target:
                    shutil.copyfileobj(source, target)
    except UserError:
        raise
    except Exception as error:  # as many kinds as zipfile and the decoders have for a damaged file
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # a full disk, and not a wrong seek
            raise
        raise UserError(
            f"{archive}: unreadable ({first_line(error)}); expected the zip of a WikiText corpus; remove it, get it "
            "anew and run it again"
        ) from error


def rebuild(source: Path, folder: Path) -> None:
    """Writes the files of the three splits as they are in WikiText's zip, from the parquet files of a folder."""
    for split in SPLITS:
        with open(folder / tokens_file(split), "w", encoding="utf-8", newline="\n") as target:
            for shard in _shards(source, split):
                target.writelines(_rows(shard))
            if not target.tell():
                raise UserError(f"{source}: found no parquet file of {split}; expected all of Salesforce/wikitext")


def _shards(folder: Path, split: str) -> list[Path]:
    """In order; `train-00000-of-00002.parquet` is the first one of two."""
    return sorted(folder.glob(f"{PARQUET_SPLITS[split]}-*-of-*.parquet"))


def _rows(shard: Path) -> Iterator[str]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(shard, page_checksum_verification=True) as file:  # where it has checksums
            left = file.metadata.num_rows  # a page of another kind is skipped
            for batch in file.iter_batches(columns=["text"]):
                left -= len(batch)
                for row in batch.column("text").to_pylist():
                    if row and not row.endswith("\n"):
                        raise ValueError(f"found {row[:40]!r}; expected a line")
                    yield row or EMPTY_LINE
            if left:
                raise ValueError(f"found {left:,} rows fewer than it says")
    except (pyarrow.ArrowException, ValueError, KeyError, AttributeError, OSError) as error:
        raise UserError(
            f"{shard}: unreadable ({first_line(error)}); expected a parquet file of Salesforce/wikitext; remove it, "
            "get it anew and run it again"
        ) from error
