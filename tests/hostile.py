"""Damaged files: a reader gives what the format says, or raises `UserError` in one line, and nothing else."""

import contextlib
import resource

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agg_fairseq.errors import UserError

AMOUNTS = pytest.mark.parametrize("files", [60, pytest.param(1000, marks=pytest.mark.slow)], ids=["few", "more"])
"""Runs a test with a few files in `make test`, and with more in `make test-slow`."""

# Long ones have 20,000 characters at most: if a name in a pickle has n, torch's message about it takes n² steps.
PIECES = (
    b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n", b"\n\n", b"\0", b"\t", b" ", b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xff",
    "\u0085".encode(), "\u2028".encode(), "\u2029".encode(), "\u00a0".encode(), "\u0663".encode(), b"\xed\xa0\x80",
    b"NaN", b"-Infinity", b"Infinity", b"nan", b"-1", b"1e999", b"1_0", b"0x10", b"9" * 400, b"9" * 5000,
    b"99999999999999999999", b"2147483648", b'"\\ud800"', b"\\u2028", b"[" * 10_000, b'{"a":' * 3000,
    b"{" * 3000, b"}", b'"', b"null", b"true", b"[]", b"{}", b"$x^", b"a" * 10_000, b"#fairseq:overwrite",
)  # fmt: skip
"""What goes wrong in texts: characters at which some functions break lines, numbers that are none, depths, lengths."""
ENDS = (b"\r\n", b"\r", b"\n\n", "\u2028".encode(), b" \n")


@st.composite
def damaged(draw, valid):
    """A file like `valid` with one to three damages; or any bytes at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    content = valid
    for _ in range(draw(st.integers(1, 3))):
        content = _damaged_once(draw, content)
    return content


def _damaged_once(draw, content):
    """A byte, word or line is lost, doubled, replaced or has a bit flipped; the rest is lost; or line ends change."""
    if draw(st.integers(0, 9)) == 0:
        return content.replace(b"\n", draw(st.sampled_from((b"", *ENDS))))
    between = draw(st.sampled_from((b"", b" ", b"\n")))
    parts = content.split(between) if between else [content[index : index + 1] for index in range(len(content))]
    index = draw(st.integers(0, max(0, len(parts) - 1)))
    part, piece = b"".join(parts[index : index + 1]), draw(st.sampled_from(PIECES))
    flipped = bytes([part[0] ^ 1 << draw(st.integers(0, 7)), *part[1:]]) if part else b""
    parts[index : index + 1] = draw(st.sampled_from(([], [part, part], [piece, part], [piece], [flipped])))
    return between.join(parts[: draw(st.sampled_from((None, None, None, index)))])


def fuzz(check, valid, files):
    """Calls `check` with damaged files like `valid`, others at each run (--hypothesis-seed), without a time limit."""
    options = {"derandomize": False, "database": None, "print_blob": True, "suppress_health_check": list(HealthCheck)}
    settings(max_examples=files, **options)(given(damaged(valid))(check))()


def refusal(read, *arguments):
    """What a reader said against a file, in one line; None where it took it. Then, what it made of it."""
    try:
        return None, read(*arguments)
    except UserError as error:
        said = str(error)
        assert said and len(said.split("\n")) == 1, said
        return said, None


@contextlib.contextmanager
def on_a_full_disk(after):
    """Within, no file can become longer than `after` bytes: writing ends as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, hard))  # Python ignores the signal that comes with it
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
