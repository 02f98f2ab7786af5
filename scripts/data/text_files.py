"""Text files with a sentence per line, plain or in archives: read and written line by line."""

from __future__ import annotations

import html
import itertools
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from agg_fairseq.errors import UserError, first_line

Item = TypeVar("Item")
Done = TypeVar("Done")

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)
ENTITY = re.compile("&(?:lt|gt|amp|quot|apos);")
"""Those of WMT's SGML. Any other entity, and a bare &, is left as it is."""


def sgm_segments(text: str) -> list[str]:
    """The segments of an SGML file of the WMT shared tasks (`newstest2014-deen-src.en.sgm`), each in one line.

    Entities are replaced by the characters that they stand for.
    """
    return [" ".join(ENTITY.sub(lambda one: html.unescape(one[0]), found).split()) for found in SEGMENT.findall(text)]


@dataclass(frozen=True)
class Text:
    """A text of a sentence per line."""

    path: Path  # a plain file, or an archive
    members: tuple[str, ...] = ()  # names of which the archive has one; those that end in `.sgm` are in WMT's SGML

    def lines(self) -> Iterator[str]:
        """The sentences, each on one line, whatever else its characters would break lines at, without its end."""
        try:
            if not self.members:
                with open(self.path, "rb") as file:
                    yield from _lines(file)
                return
            with tarfile.open(self.path) as archive:
                name, file = self._member(archive)
                yield from sgm_segments(file.read().decode("utf-8")) if name.endswith(".sgm") else _lines(file)
                while archive.fileobj.read(1 << 20):  # to the end, where gzip compares its checksum
                    pass
        except UnicodeDecodeError as error:
            raise UserError(f"{self.path}: found bytes that are not UTF-8; convert the file") from error
        except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            raise UserError(
                f"{self.path}: unreadable ({first_line(error)}); remove it, get it anew and run this again"
            ) from error

    def _member(self, archive: tarfile.TarFile) -> tuple[str, IO[bytes]]:
        """The first of the members that is in the archive. Nothing is extracted to a disk."""
        for member in archive:
            name = member.name.removeprefix("./")
            if name in self.members and member.isfile():
                return name, archive.extractfile(member)
        raise UserError(f"{self.path}: found no {' nor '.join(self.members)} in it; expected WMT's own archive")


def _lines(file: IO[bytes]) -> Iterator[str]:
    for number, line in enumerate(file):
        text = line.decode("utf-8-sig" if number == 0 else "utf-8")
        yield " ".join(text.splitlines()).strip()


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file that `write_lines` wrote, without their ends."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a text; shows progress."""
    from tqdm import tqdm

    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for line in tqdm(lines, desc=path.name, unit=" lines", unit_scale=True, disable=None, leave=False):
            file.write(f"{line}\n")


def count_lines(path: Path) -> int:
    """Number of line ends of a file."""
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def in_batches(
    work: Callable[[list[Item]], list[Done]], items: Iterable[Item], workers: int = 1, size: int = 1000
) -> Iterator[Done]:
    """The results of `work` on batches of a stream, in the order of the stream, by a number of processes.

    The stream is read as it is needed. With one worker, that is this process.
    """
    import joblib

    stream = iter(items)
    batches = iter(lambda: list(itertools.islice(stream, size)), [])
    tasks = (joblib.delayed(work)(batch) for batch in batches)
    for results in joblib.Parallel(workers, return_as="generator")(tasks):
        yield from results
