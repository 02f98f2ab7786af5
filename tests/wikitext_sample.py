"""A small corpus in WikiText's form, and the forms in which people have it."""

import hashlib
import random
import zipfile
from pathlib import Path

import pyarrow
from pyarrow import parquet

from scripts.data.files import digest
from scripts.data.prepared_folder import SPLITS
from scripts.data.wikitext_source import PARQUET_SPLITS, Corpus, tokens_file
from tests.conftest import zipf_text

WORDS = ["<unk>", "@-@", "@,@", "café", "戦場", "naïve", "''", "role", "playing"]


def sample_text(seed: int, paragraphs: int = 40) -> str:
    """Paragraphs under headings between empty lines, each line with a space at its beginning and end."""
    generator = random.Random(seed)
    blocks = []
    for number, line in enumerate(zipf_text(paragraphs, words=80, seed=seed)):
        words = [*line.split(), "role", "@-@", "playing", *generator.choices(WORDS, k=6), "<unk>", "."]
        blocks.append(f" \n = Title {number} = \n \n {' '.join(words)} \n")
    return "".join(blocks)


def sample_texts() -> dict[str, str]:
    return {
        split: sample_text(seed, paragraphs)
        for seed, (split, paragraphs) in enumerate(zip(SPLITS, (40, 8, 9), strict=True))
    }


def write_files(folder: Path, texts: dict[str, str]) -> Path:
    folder.mkdir(parents=True)
    for split, text in texts.items():
        (folder / tokens_file(split)).write_text(text, encoding="utf-8", newline="\n")
    return folder


def write_zip(path: Path, texts: dict[str, str], folder: str = "wikitext-9/") -> Path:
    """The archive, with its folder; its members have the date of 1980, so that its bytes are always the same."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for split, text in texts.items():
            archive.writestr(zipfile.ZipInfo(f"{folder}{tokens_file(split)}"), text)
    return path


def write_parquet(folder: Path, texts: dict[str, str], shards: int = 2) -> Path:
    """As on the hub: a row for each line, those that are empty without their space and end."""
    folder.mkdir(parents=True)
    for split, text in texts.items():
        rows = ["" if line == " \n" else line for line in text.splitlines(keepends=True)]
        count = shards if split == "train" else 1
        for number in range(count):
            part = rows[number * len(rows) // count : (number + 1) * len(rows) // count]
            name = f"{PARQUET_SPLITS[split]}-{number:05}-of-{count:05}.parquet"
            parquet.write_table(pyarrow.table({"text": part}), folder / name)
    return folder


def corpus_of(texts: dict[str, str], archive: Path | None = None) -> Corpus:
    """What would be known of it, were it published."""
    return Corpus(
        name="WikiText-9",
        zip_sha256=digest(archive) if archive else "0" * 64,
        shards=2,
        digests={split: hashlib.sha1(text.encode()).hexdigest() for split, text in texts.items()},
        tokenizer="words",
    )
