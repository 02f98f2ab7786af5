"""Prints texts with a sentence per line.

    python -m scripts.data.plain_text text|sgm|parquet [FILE…]

Without a FILE, it reads standard input. `sgm` is the SGML of the WMT shared tasks; `parquet` are
the files of Salesforce/wikitext on the Hugging Face hub.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from typing import IO, Any

from agg_fairseq.errors import UserError, first_line

from ..command import run

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)
# those of WMT's SGML; any other, and a bare &, is left as it is
ENTITY = re.compile("&(?:lt|gt|amp|quot|apos);")


def plain_lines(file: IO[bytes]) -> Iterator[str]:
    """The sentences, one per line feed; other line breaks become spaces."""
    for number, line in enumerate(file):
        yield " ".join(line.decode("utf-8-sig" if number == 0 else "utf-8").splitlines()).strip()


def sgm_segments(file: IO[bytes]) -> Iterator[str]:
    """The segments of an SGML file, with characters in place of entities."""
    for segment in SEGMENT.findall(file.read().decode("utf-8")):
        yield " ".join(ENTITY.sub(lambda entity: html.unescape(entity[0]), segment).split())


def parquet_rows(file: Any) -> Iterator[str]:
    """The lines as they are in WikiText's zip, where an empty row was a space before the hub's
    script emptied it."""
    from pyarrow import parquet

    for batch in parquet.ParquetFile(file).iter_batches(columns=["text"]):
        for row in batch.column("text").to_pylist():
            yield row.removesuffix("\n") or " "


READERS = {"text": plain_lines, "sgm": sgm_segments, "parquet": parquet_rows}


def main() -> None:
    """Prints all files."""
    kind, *paths = sys.argv[1:]
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    for path in paths or [0]:
        try:
            with open(path, "rb") as file:
                for line in READERS[kind](file):
                    print(line)
        except (UnicodeDecodeError, ValueError, AttributeError, KeyError) as error:
            found = f"{path}: unreadable ({first_line(error)})"
            raise UserError(f"{found}; expected {kind} in UTF-8") from error


if __name__ == "__main__":
    sys.exit(run("plain_text", main))
