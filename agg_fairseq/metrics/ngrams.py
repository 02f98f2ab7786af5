"""n-grams of texts: what the measures of generated text are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

Text = Sequence[str]
PADDING = None
"""Stands beside the ends of a padded text; no token equals it."""


def ngrams(text: Sequence[str | None], order: int) -> Iterator[tuple[str | None, ...]]:
    """The n-grams of a text from left to right: len(text) − order + 1 of them, none of a shorter text.

    Raises:
        ValueError: the order is below 1.
    """
    if order < 1:
        raise ValueError(f"expected n-grams of order 1 or more, got {order}")
    return zip(*(text[start:] for start in range(order)), strict=False)


def count_ngrams(texts: Iterable[Text], order: int, *, padded: bool = False) -> Counter[tuple[str | None, ...]]:
    """How often each n-gram occurs in all texts together.

    Args:
        texts: lists of tokens.
        order: n, at least 1.
        padded: put n − 1 padding symbols on each side of each text, so that every token is in n of its n-grams.

    Raises:
        ValueError: the order is below 1.
    """
    counts: Counter[tuple[str | None, ...]] = Counter()
    border = [PADDING] * (order - 1) if padded else []
    for text in texts:
        counts.update(ngrams([*border, *text, *border], order))
    return counts


def check_texts(texts: Sequence[Text], max_order: int = 1) -> None:
    """What all measures ask of their texts.

    Raises:
        TypeError: a text is a string: it is not cut into tokens yet.
        ValueError: there is no text, or `max_order` is below 1.
    """
    if max_order < 1:
        raise ValueError(f"expected n-grams of order 1 or more, got {max_order}")
    if len(texts) == 0:
        raise ValueError("expected at least one text, got none")
    string = next((text for text in [texts, *texts] if isinstance(text, str)), None)
    if string is not None:
        raise TypeError(f"expected texts that are lists of tokens, got the string {string[:40]!r}")
