"""What preparations do with files: texts with a sentence per line, plain or in archives; digests; locks."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import html
import itertools
import lzma
import os
import re
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agg_fairseq.errors import UserError, first_line

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)
ENTITY = re.compile("&(?:lt|gt|amp|quot|apos);")
"""Those of WMT's SGML. Any other entity, and a bare &, is left as it is."""

ALGORITHMS = {32: "md5", 40: "sha1", 64: "sha256"}  # of hashlib, by the number of hexadecimal digits
BATCH = 1000  # lines that a process is handed at a time


def sgm_segments(text: str) -> list[str]:
    """The segments of an SGML file of the WMT shared tasks, each in one line, with characters in place of entities."""
    segments = (ENTITY.sub(lambda entity: html.unescape(entity[0]), segment) for segment in SEGMENT.findall(text))
    return [" ".join(segment.split()) for segment in segments]


@dataclass(frozen=True)
class Text:
    """A text of a sentence per line."""

    path: Path  # a plain file, or an archive
    members: tuple[str, ...] = ()  # names of which the archive has one; those that end in `.sgm` are in WMT's SGML

    def lines(self) -> Iterator[str]:
        """The sentences, one per line feed, without line ends; other line breaks within a sentence become spaces."""
        try:
            if not self.members:
                with open(self.path, "rb") as file:
                    yield from _lines(file)
                return
            with tarfile.open(self.path) as archive:  # nothing is extracted to a disk
                names = ((member.name.removeprefix("./"), member) for member in archive if member.isfile())
                name, member = next((pair for pair in names if pair[0] in self.members), (None, None))
                if name is None:
                    raise UserError(f"{self.path}: found no {' nor '.join(self.members)}; expected WMT's own archive")
                file = archive.extractfile(member)
                yield from sgm_segments(file.read().decode("utf-8")) if name.endswith(".sgm") else _lines(file)
                while archive.fileobj.read(1 << 20):  # to the end, where gzip compares its checksum
                    pass
        except UnicodeDecodeError as error:
            raise UserError(f"{self.path}: found bytes that are not UTF-8; convert the file") from error
        except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            raise UserError(f"{self.path}: unreadable ({first_line(error)}); get it anew and run this again") from error


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


def in_batches(work: Callable[[list[str]], list[str]], lines: Iterable[str], workers: int = 1) -> Iterator[str]:
    """The results of `work` on batches of lines, in order, by `workers` processes; the lines are read lazily."""
    import joblib

    stream = iter(lines)
    batches = iter(lambda: list(itertools.islice(stream, BATCH)), [])
    tasks = (joblib.delayed(work)(batch) for batch in batches)
    for results in joblib.Parallel(workers, return_as="generator")(tasks):
        yield from results


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file in hexadecimal."""
    hasher = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            hasher.update(chunk)
    return hasher.hexdigest()


def wrong_digest(path: Path, published: Sequence[str]) -> str | None:
    """An error unless a file has one of the digests (MD5, SHA-1, SHA-256) that were published of it, if any were."""
    own = dict.fromkeys(digest(path, ALGORITHMS[len(expected)]) for expected in published)
    if not published or own.keys() & {*published}:
        return None
    return f"found the digest {' or '.join(own)}; expected {' or '.join(published)}"


def lock(file: IO[Any], awaited: str) -> None:
    """Takes the lock of an open file, held until the file is closed here and in all processes that inherit it."""
    with contextlib.suppress(OSError):  # of a network file system without locks
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for {awaited} to end", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)


@contextlib.contextmanager
def only_run_in(folder: Path) -> Iterator[int]:
    """Waits until no other run works in a folder, which is created if it is missing.

    Yields:
        The descriptor of the lock's file. A process that inherits it (`pass_fds`, or `close_fds=False`) keeps the lock
        if this one is killed, so that the next run waits for what is left of this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a", encoding="utf-8") as file:
        os.set_inheritable(file.fileno(), True)
        lock(file, f"another run in {folder}")
        yield file.fileno()
