"""Files that nobody meant well: how they are made, and what every reader has to do about them.

A reader gives what the format says, or raises `UserError` in one line. Nothing else may come out of it.
"""

import contextlib
import os
import resource

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from agg_fairseq.errors import UserError


def fuzzing(files):
    """Settings of a fuzzer: so many damaged files, others at each run (--hypothesis-seed), however long each takes."""
    return settings(
        max_examples=files, derandomize=False, database=None, print_blob=True, suppress_health_check=list(HealthCheck)
    )


FEW = fuzzing(60)
MORE = pytest.param(fuzzing(1000), marks=pytest.mark.slow)
AMOUNTS = pytest.mark.parametrize("amount", [FEW, MORE], ids=["few", "more"])
"""Runs a test with a few files in `make test`, and with more in `make test-slow`: of readers that take milliseconds."""

PIECES = (
    b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n", b"\n\n", b"\0", b"\t", b" ", b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xff",
    "\u0085".encode(), "\u2028".encode(), "\u2029".encode(), "\u00a0".encode(), "\u0663".encode(), b"\xed\xa0\x80",
    b"NaN", b"-Infinity", b"Infinity", b"nan", b"-1", b"1e999", b"1_0", b"0x10", b"9" * 400, b"9" * 5000,
    b"99999999999999999999", b"2147483648", b'"\\ud800"', b"\\u2028", b"[" * 100_000, b'{"a":' * 20_000,
    b"{" * 3000, b"}", b'"', b"null", b"true", b"[]", b"{}", b"$x^", b"a" * 100_000, b"#fairseq:overwrite",
)  # fmt: skip
"""What goes wrong in texts: characters at which some functions break lines, numbers that are none, depths, lengths."""


@st.composite
def damaged(draw, valid):
    """A file like `valid`, damaged in one to three places; or any bytes at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    content = valid
    for _ in range(draw(st.integers(1, 3))):
        content = draw(st.sampled_from(DAMAGES))(draw, content)
    return content


def _flipped(draw, content):
    if not content:
        return content
    place, bit = draw(st.integers(0, len(content) - 1)), draw(st.integers(0, 7))
    return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]


def _inserted(draw, content):
    place = draw(st.integers(0, len(content)))
    return content[:place] + draw(st.sampled_from(PIECES)) + content[place:]


def _replaced(draw, content):
    """A word, or a number, of the file becomes something else."""
    words = content.split(b" ")
    words[draw(st.integers(0, len(words) - 1))] = draw(st.sampled_from(PIECES))
    return b" ".join(words)


def _other_lines(draw, content):
    """A line is missing, there twice, or elsewhere."""
    lines = content.splitlines(keepends=True)
    if not lines:
        return content
    line = lines.pop(draw(st.integers(0, len(lines) - 1)))
    for _ in range(draw(st.integers(0, 2))):
        lines.insert(draw(st.integers(0, len(lines))), line)
    return b"".join(lines)


ENDS = (b"\r\n", b"\r", b"\n\n", "\u2028".encode(), b" \n")
DAMAGES = (
    *(_flipped, _inserted, _inserted, _replaced, _replaced, _other_lines),
    lambda draw, content: content[: draw(st.integers(0, len(content)))],
    lambda draw, content: content.replace(b"\n", draw(st.sampled_from(ENDS))),
    lambda draw, content: content.rstrip(b"\n"),
)


def refusal(read, *arguments):
    """What a reader said against a file, in one line; None where it took it. Then, what it made of it."""
    try:
        return None, read(*arguments)
    except UserError as error:
        said = str(error)
        assert said and len(said.split("\n")) == 1, said
        return said, None


def special_files(folder):
    """What is no file: a pipe that nobody writes to, a device without an end, a folder, a link to nowhere."""
    pipe, nowhere = folder / "pipe", folder / "nowhere"
    os.mkfifo(pipe)
    nowhere.symlink_to(folder / "not there")
    return {"pipe": pipe, "endless": "/dev/zero", "folder": folder, "link to nowhere": nowhere}


@contextlib.contextmanager
def on_a_full_disk(after):
    """In here the system refuses to make any file longer than so many bytes; writing ends as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, hard))  # Python ignores the signal that comes with it
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
