"""Damaged files, others at each run."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

AMOUNTS = pytest.mark.parametrize(
    "files", [60, pytest.param(300, marks=pytest.mark.slow)], ids=["few", "more"]
)
"""Runs a test with a few files in `make test`, and with more in `make test-slow`."""
PIECES = (b"\0", b"\n", b"\xff", b"\x80\x02", b"9" * 400, b"a" * 10_000)


@st.composite
def damaged(draw, valid):
    """A file like `valid` of which one to three bytes are lost, doubled, replaced or flipped, or
    the rest is lost."""
    content = valid
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, max(0, len(content) - 1)))
        part, piece = content[index : index + 1], draw(st.sampled_from(PIECES))
        flipped = bytes([part[0] ^ 1 << draw(st.integers(0, 7))]) if part else b""
        instead = draw(st.sampled_from((b"", part + part, piece + part, piece, flipped)))
        rest = draw(st.sampled_from((content[index + 1 :], content[index + 1 :], b"")))
        content = content[:index] + instead + rest
    return content


def fuzz(check, valid, files):
    """Calls `check` with damaged files like `valid`, others at each run (--hypothesis-seed),
    without a time limit."""
    options = {
        "derandomize": False,
        "database": None,
        "print_blob": True,
        "suppress_health_check": list(HealthCheck),
    }
    settings(max_examples=files, **options)(given(damaged(valid))(check))()
