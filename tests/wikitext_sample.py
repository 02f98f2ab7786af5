"""A small corpus in WikiText's form, and the forms in which people have it."""

import random
import shutil
from pathlib import Path

import numpy
import pyarrow
from pyarrow import parquet

from tests.conftest import zipf_text

WORDS = ["<unk>", "@-@", "@,@", "café", "戦場", "naïve", "''", "role", "playing"]


def sample_text(seed, paragraphs=40):
    """Paragraphs under headings between empty lines, each line with a space at its beginning and
    end."""
    generator = random.Random(seed)
    blocks = []
    for number, line in enumerate(zipf_text(paragraphs, words=80, seed=seed)):
        words = [
            *line.split(), "role", "@-@", "playing", *generator.choices(WORDS, k=6), "<unk>", ".",
        ]  # fmt: skip
        blocks.append(f" \n = Title {number} = \n \n {' '.join(words)} \n")
    return "".join(blocks)


def sample_texts():
    return {"train": sample_text(0, 40), "valid": sample_text(1, 8), "test": sample_text(2, 9)}


def write_files(folder, texts, suffix="tokens"):
    folder.mkdir(parents=True)
    for split, text in texts.items():
        (folder / f"wiki.{split}.{suffix}").write_text(text, encoding="utf-8", newline="\n")
    return folder


def write_zip(path, texts, suffix="tokens"):
    files = write_files(path.with_name(f"{path.name} files") / "wikitext-9", texts, suffix)
    made = shutil.make_archive(str(path), "zip", files.parent, files.name)
    return Path(made).rename(path)


def write_parquet(folder, texts):
    """As on the hub: a row for each line, those that are empty without their space and end; of
    train, two files."""
    folder.mkdir(parents=True)
    for split, text in texts.items():
        rows = ["" if line == " \n" else line for line in text.splitlines(keepends=True)]
        parts = numpy.array_split(rows, 2 if split == "train" else 1)
        name = "validation" if split == "valid" else split
        for number, part in enumerate(parts):
            path = folder / f"{name}-{number:05}-of-{len(parts):05}.parquet"
            parquet.write_table(pyarrow.table({"text": part}), path)
    return folder
