"""The WikiText corpora, version 1 (words, `<unk>`, ` @-@ `): where to get them, and how to recognize their files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from agg_fairseq.errors import UserError

from .download import Check, expected
from .prepared_folder import SPLITS
from .text_files import text_size

PARQUET_SPLITS = {"train": "train", "valid": "validation", "test": "test"}
"""What the splits are called on the Hugging Face hub."""
ZIPS = "https://wikitext.smerity.com"
"""Where their author keeps the archives; their first home, at s3.amazonaws.com, is closed."""
HUB = "https://huggingface.co/datasets/Salesforce/wikitext/resolve/b08601e04326c79dfdd32d625aee71d232d685c3"
"""The files of the Hugging Face hub, at the revision that the sizes below were published for."""


def tokens_file(split: str) -> str:
    """What the file of a split is called in the archives."""
    return f"wiki.{split}.tokens"


@dataclass(frozen=True)
class Official:
    """A file as it was published: its lines, its words with an end of each line, and its SHA-256 or SHA-1."""

    lines: int
    tokens: int
    digest: str

    @property
    def check(self) -> Check:
        """Whether a file is this one."""
        return expected(self.digest)


@dataclass(frozen=True)
class Corpus:
    """A corpus and its mirrors.

    Args:
        name: of the corpus, as people write it.
        archive: name of the zip, less the suffix; also of the folder of parquet files on the hub.
        zip_sha256: SHA-256 of the zip, in hexadecimal.
        zip_bytes: its size.
        shards: how many parquet files the training part is in on the hub.
        shard_bytes: size of all parquet files.
        files: by split.
        tokenizer: the one that is used unless another is asked for.
        measured: time and disk space of a preparation, if that was measured.
        gpt2_dictionary: entries of fairseq's dictionary of the text in GPT-2's sub-words, where a paper says so.
    """

    name: str
    archive: str
    zip_sha256: str
    zip_bytes: int
    shards: int
    shard_bytes: int
    files: Mapping[str, Official]
    tokenizer: str
    measured: str = ""
    gpt2_dictionary: int | None = None

    @property
    def zip_url(self) -> str:
        """Where the zip is."""
        return f"{ZIPS}/{self.archive}.zip"

    @property
    def folder(self) -> str:
        """What the archive unpacks to."""
        return self.archive.removesuffix("-v1")

    def parquet_url(self, name: str) -> str:
        """Where the hub has a file of `parquet_files`."""
        return f"{HUB}/{self.archive}/{name}"

    def parquet_files(self) -> list[str]:
        """Names of the files on the hub."""
        counts = {"train": self.shards, "valid": 1, "test": 1}
        return [
            f"{PARQUET_SPLITS[split]}-{number:05}-of-{count:05}.parquet"
            for split, count in counts.items()
            for number in range(count)
        ]


# Sources. Lines: torchtext's NUM_LINES. Tokens: Merity et al. (2017), Table 1, which counts an end of each line.
# Zips: Hugging Face's datasets/wikitext/dataset_infos.json. Sizes of the parquet files: the hub's, at its revision.
# Files: SHA-1 of those in the zips, by GluonNLP's data/corpora/wikitext.py; no SHA-256 of WikiText-103's was found in
# public. Validation and test parts of WikiText-2: SHA-256 of the copies in pytorch/examples, which many projects quote
# and of which GluonNLP's SHA-1 are too.
CORPORA: Mapping[str, Corpus] = MappingProxyType(
    {
        "wikitext103": Corpus(
            name="WikiText-103",
            archive="wikitext-103-v1",
            zip_sha256="242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
            zip_bytes=190_229_076,
            shards=2,
            shard_bytes=313_093_838,
            files={
                "train": Official(1_801_350, 103_227_021, "b7497e2dfe77e72cfef5e3dbc61b7b53712ac211"),
                "valid": Official(3_760, 217_646, "c326ac59dc587676d58c422eb8a03e119582f92b"),
                "test": Official(4_358, 245_569, "8a5befc548865cec54ed4273cf87dbbad60d1e47"),
            },
            tokenizer="gpt2",
            gpt2_dictionary=44_256,  # Yu et al. (2022), Table 12
        ),
        "wikitext2": Corpus(
            name="WikiText-2",
            archive="wikitext-2-v1",
            zip_sha256="92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
            zip_bytes=4_475_746,
            shards=1,
            shard_bytes=7_371_282,
            files={
                "train": Official(36_718, 2_088_628, "863f29c46ef9d167fff4940ec821195882fe29d1"),
                "valid": Official(3_760, 217_646, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
                "test": Official(4_358, 245_569, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
            },
            tokenizer="words",
            measured="Measured on 2 cores: 16 to 30 seconds and 31 to 40 MB of disk, by tokenizer.",
        ),
    }
)

MARKS = {"<unk>": "version 1, not the raw one, where rare words are <unk>", " @-@ ": "text in WikiText's tokens"}
"""Strings that occur in the training part of every WikiText of version 1, and what a text that has them is."""


def is_official(corpus: Corpus, folder: Path) -> bool:
    """Whether the files in a folder are the published ones."""
    return not any(corpus.files[split].check(folder / tokens_file(split)) for split in SPLITS)


def check(corpus: Corpus, folder: Path, downloaded: Sequence[Path] = ()) -> None:
    """Checks that the files in a folder are those of a corpus.

    Args:
        corpus: the corpus that they should be of.
        folder: of the three files.
        downloaded: files that they were made of. Without any, the user gave the text, which may be a sample: a warning
            is printed, and it is accepted.

    Raises:
        UserError: a file is not of version 1, or empty; or it was downloaded and is not the published one.
    """
    for mark, said in MARKS.items():
        with open(folder / tokens_file("train"), "rb") as file:
            if not any(mark.encode() in line for line in file):
                raise UserError(f"{tokens_file('train')}: found no '{mark}' in it; expected {said}")
    for split in SPLITS:
        path, official = folder / tokens_file(split), corpus.files[split]
        wrong = official.check(path)
        if wrong is None:
            continue
        size = text_size(path)
        if not size.lines:
            raise UserError(f"{tokens_file(split)}: found nothing in it; expected the {split} part of {corpus.name}")
        said = (
            f"{tokens_file(split)} is not that of {corpus.name}: found {size.lines:,} lines, {size.tokens:,} tokens; "
            f"expected {official.lines:,} lines, {official.tokens:,} tokens; {wrong}"
        )
        if downloaded:
            raise UserError(
                f"{said}; remove {', '.join(map(str, downloaded))} and run it again, or name your own text by --from"
            )
        print(f"wikitext: warning: {said}; going on with it", file=sys.stderr)
