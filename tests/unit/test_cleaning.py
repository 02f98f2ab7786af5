"""Which pairs are trained on."""

import pytest

from scripts.data.cleaning import is_clean


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (1, 1, True),
        (0, 1, False),
        (1, 0, False),
        (0, 0, False),
        (250, 250, True),
        (251, 250, False),
        (250, 251, False),
        (2, 3, True),
        (3, 2, True),
        (2, 4, False),
        (4, 2, False),
        (100, 150, True),
        (100, 151, False),
        (167, 250, True),
        (166, 250, False),
    ],
)
def test_lengths(source, target, expected):
    """From 1 to 250 tokens, and at most one and a half times those of the other side, both ends included."""
    assert is_clean(" ".join("a" * source), " ".join("b" * target)) is expected


def test_spaces_are_no_tokens():
    assert not is_clean("  ", "a") and is_clean(" a  b ", "a b c")
