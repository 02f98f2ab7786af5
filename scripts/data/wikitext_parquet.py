"""The Hugging Face hub's form of a WikiText corpus: parquet files with a row for each line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow
from pyarrow import parquet

from agg_fairseq.errors import UserError, first_line

from .binarise import SPLITS
from .wikitext_corpora import PARQUET_SPLITS, tokens_file

EMPTY_LINE = " \n"
"""What an empty row was before the hub's own script emptied it."""


def parquet_files(folder: Path) -> list[Path]:
    """Those of such a corpus that a folder has."""
    return [path for split in SPLITS for path in sorted(folder.glob(f"{PARQUET_SPLITS[split]}-*-of-*.parquet"))]


def wrong_parquet(path: Path) -> str | None:
    """Says what is wrong with a file that should be of this form, if anything: all but its rows."""
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
        with open(folder / tokens_file(split), "w", encoding="utf-8", newline="\n") as target:
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
    for row in _rows(shard):
        if row and (row.count("\n") != 1 or not row.endswith("\n")):
            raise UserError(
                f"{shard}: found a row that is not a line ({row[:40]!r}); expected those of Salesforce/wikitext"
            )
        yield row or EMPTY_LINE


def _rows(shard: Path) -> Iterator[str]:
    try:
        with parquet.ParquetFile(shard) as file:
            for batch in file.iter_batches(columns=["text"]):
                yield from batch.column("text").cast("string").to_pylist()
    except (pyarrow.ArrowException, ValueError, KeyError, OSError) as error:
        raise UserError(
            f"{shard}: unreadable ({first_line(error)}); expected a parquet file with a column of text; remove it, get "
            "it anew and run it again"
        ) from error
