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
from .files import wrong_digest
from .prepared_folder import SPLITS

PARQUET_SPLITS = {"train": "train", "valid": "validation", "test": "test"}  # as the hub calls the splits
ZIPS = "https://wikitext.smerity.com"  # of their author; their first home, at s3.amazonaws.com, is closed
HUB = "https://huggingface.co/datasets/Salesforce/wikitext/resolve/b08601e04326c79dfdd32d625aee71d232d685c3"
EMPTY_LINE = " \n"  # what an empty row of the hub's files was before the hub's own script emptied it


def tokens_file(split: str) -> str:
    """What the file of a split is called in the archives."""
    return f"wiki.{split}.tokens"


@dataclass(frozen=True)
class Corpus:
    """A corpus."""

    name: str  # as people write it
    zip_sha256: str
    shards: int  # parquet files of the training part on the hub
    digests: Mapping[str, str]  # SHA-256 or SHA-1 of the text files by split
    tokenizer: str  # unless another is asked for

    @property
    def archive(self) -> str:
        """The name of the zip, less the suffix; also of the folder of parquet files on the hub."""
        return f"{self.name.lower()}-v1"


# Zips: Hugging Face's datasets/wikitext/dataset_infos.json. Files: SHA-1 of those in the zips, by GluonNLP's
# data/corpora/wikitext.py; no SHA-256 of WikiText-103's was found in public. Validation and test parts of WikiText-2:
# SHA-256 of the copies in pytorch/examples, which many projects quote and of which GluonNLP's SHA-1 are too.
CORPORA: Mapping[str, Corpus] = {
    "wikitext103": Corpus(
        name="WikiText-103",
        zip_sha256="242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
        shards=2,
        digests={
            "train": "b7497e2dfe77e72cfef5e3dbc61b7b53712ac211",
            "valid": "c326ac59dc587676d58c422eb8a03e119582f92b",
            "test": "8a5befc548865cec54ed4273cf87dbbad60d1e47",
        },
        tokenizer="gpt2",
    ),
    "wikitext2": Corpus(
        name="WikiText-2",
        zip_sha256="92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
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
        unpack(fetch(archive, [f"{ZIPS}/{archive.name}"], [corpus.zip_sha256]), folder)
    except NoMirror as missing:
        print(f"wikitext: {missing}\nwikitext: trying the Hugging Face hub", file=sys.stderr)
        for split, count in {"train": corpus.shards, "valid": 1, "test": 1}.items():
            for number in range(count):
                name = f"{PARQUET_SPLITS[split]}-{number:05}-of-{count:05}.parquet"
                fetch(shards / name, [f"{HUB}/{corpus.archive}/{name}"])  # no digest is published
        rebuild(shards, folder)
    if others := differences(corpus, folder):
        raise UserError(f"{'; '.join(others)}; remove {shards}* and run it again")


def take(corpus: Corpus, given: Path, folder: Path) -> None:
    """The same from what the user has: any of the three forms. A text that is not the published one gets a warning."""
    files = given_files(corpus, given)
    if given.is_file():
        unpack(given, folder)
    elif files[0].suffix == ".parquet":
        rebuild(given, folder)
    else:
        for file in files:
            shutil.copyfile(file, folder / file.name)
    with open(folder / tokens_file("train"), "rb") as file:
        if not any(b"<unk>" in line for line in file):
            raise UserError(
                f"{given}: found no <unk> in the training part; expected {corpus.name}, not the raw version"
            )
    for other in differences(corpus, folder):
        print(f"wikitext: warning: {other}; going on with it", file=sys.stderr)


def differences(corpus: Corpus, folder: Path) -> list[str]:
    """A line for each of the three files in a folder that is not the published one."""
    wrong = {split: wrong_digest(folder / tokens_file(split), [corpus.digests[split]]) for split in SPLITS}
    return [f"{tokens_file(split)} is not that of {corpus.name}: {text}" for split, text in wrong.items() if text]


def given_files(corpus: Corpus, given: Path) -> list[Path]:
    """What `take` reads: the zip; or the three files of a folder; or its parquet files."""
    if given.is_file():
        return [given]
    files = [given / tokens_file(split) for split in SPLITS]
    if all(file.is_file() for file in files):
        return files
    shards = [shard for split in SPLITS for shard in _shards(given, split)]
    if not shards:
        raise UserError(
            f"--from: found neither a zip at {given} nor wiki.*.tokens or parquet files in it; expected {corpus.name}"
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
        raise UserError(f"{archive}: unreadable ({first_line(error)}); expected WikiText's zip; get it anew") from error


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
            f"{shard}: unreadable ({first_line(error)}); expected a parquet file of Salesforce/wikitext; get it anew"
        ) from error
