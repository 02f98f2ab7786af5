"""Text files with a sentence per line, plain or in archives: read, written and counted line by line."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from xml.sax.saxutils import unescape

from agg_fairseq.errors import UserError, first_line
from scripts.command import writing

CHUNK = 1 << 20
BROKEN = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, ValueError, RecursionError)


SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)
ENTITIES = {"&quot;": '"', "&apos;": "'"}
"""Of WMT's SGML, beside &lt; &gt; &amp;. Any other entity, and a bare &, is left as it is."""


def sgm_segments(text: str) -> list[str]:
    """The segments of an SGML file of the WMT shared tasks (`newstest2014-deen-src.en.sgm`), in order.

    Each is one line, with entities replaced by the characters that they stand for. It may be empty.
    """
    return [" ".join(unescape(found, ENTITIES).split()) for found in SEGMENT.findall(text)]


@dataclass(frozen=True)
class Text:
    """A text of a sentence per line.

    Args:
        path: a plain file, or an archive.
        members: of the archive, by the names one of which it has; none where `path` is the text itself. Those that end
            in `.sgm` are in the SGML of WMT.
    """

    path: Path
    members: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As a message names it."""
        return f"{self.path} ({' or '.join(self.members)})" if self.members else str(self.path)

    def lines(self) -> Iterator[str]:
        """The sentences, each on one line, whatever else its characters would break lines at, without its end.

        Raises:
            UserError: the file cannot be read, is damaged, is not UTF-8, or the archive has no such member.
        """
        try:
            yield from self._of_archive() if self.members else self._of_file()
        except BROKEN as error:
            raise UserError(
                f"{self.path}: found a damaged archive ({first_line(error)}); remove it, get it anew and run this again"
            ) from error
        except OSError as error:
            raise UserError(f"{self.path}: unreadable ({first_line(error)})") from error

    def _of_file(self) -> Iterator[str]:
        with open(self.path, "rb") as file:
            yield from _lines(file, str(self))

    def _of_archive(self) -> Iterator[str]:
        with tarfile.open(self.path) as archive:
            name, file = self._member(archive)
            is_sgm = name.endswith(".sgm")
            yield from sgm_segments(_decoded(file.read(), str(self))) if is_sgm else _lines(file, str(self))
            while archive.fileobj and archive.fileobj.read(CHUNK):  # its checksum is at its end
                pass

    def _member(self, archive: tarfile.TarFile) -> tuple[str, IO[bytes]]:
        """The first of the members that is in the archive. Nothing is extracted to a disk."""
        for member in archive:
            name = member.name.removeprefix("./")
            if name in self.members and member.isfile():
                file = archive.extractfile(member)
                if file is not None:
                    return name, file
        raise UserError(f"{self.path}: found no {' nor '.join(self.members)} in it; expected WMT's own archive")


@dataclass(frozen=True)
class ParallelText:
    """A text in two languages, as many lines in each.

    Args:
        source: it in one language.
        target: it in the other.
        lines: how many it is known to have; 0: not known.
    """

    source: Text
    target: Text
    lines: int = 0


def _lines(file: IO[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(file, 1):
        text = _decoded(line, f"{name}, line {number}").removeprefix("\ufeff" if number == 1 else "")
        yield " ".join(text.splitlines()).strip()


def _decoded(found: bytes, name: str) -> str:
    try:
        return found.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: found bytes that are not UTF-8; convert the file") from error


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file that `write_lines` wrote, without their ends."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Writes a text, and returns how many lines it has; shows progress."""
    from tqdm import tqdm

    written = 0
    with writing(path), open(path, "w", encoding="utf-8", newline="\n") as file:
        for line in tqdm(lines, desc=path.name, unit=" lines", unit_scale=True, disable=None, leave=False):
            file.write(f"{line}\n")
            written += 1
    return written


def write_pairs(paths: Sequence[Path], pairs: Iterable[Sequence[str]]) -> None:
    """Writes two texts, line by line of both; shows progress.

    Args:
        paths: one for each side.
        pairs: of lines.
    """
    from tqdm import tqdm

    with writing(*paths), contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(path, "w", encoding="utf-8", newline="\n")) for path in paths]
        for pair in tqdm(pairs, desc=paths[0].stem, unit=" pairs", unit_scale=True, disable=None, leave=False):
            for file, line in zip(files, pair, strict=True):
                file.write(f"{line}\n")


@dataclass(frozen=True)
class TextSize:
    """Size of a text file.

    Args:
        lines: number of lines.
        tokens: number of words, plus one per line for its end, as language models count.
    """

    lines: int
    tokens: int


def text_size(path: Path) -> TextSize:
    """Counts the lines and tokens of a text file.

    Raises:
        UserError: it is not in UTF-8.
    """
    lines = tokens = 0
    with open(path, "rb") as file:
        for line in file:
            lines += 1
            try:
                tokens += len(line.decode("utf-8").split()) + 1
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path}, line {lines}: found bytes that are not UTF-8; expected text in UTF-8"
                ) from error
    return TextSize(lines, tokens)


def count_lines(path: Path) -> int:
    """Number of line ends of a file."""
    with open(path, "rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
