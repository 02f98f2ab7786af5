"""How varied texts are, each by itself and together: Distinct, Repetition, Uniq."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .ngrams import Text, check_texts, ngrams

SHORTEST_PHRASE = 3


def distinct(texts: Sequence[Text], max_order: int = 3) -> list[float]:
    """Distinct-n: the mean over texts of the number of distinct n-grams, divided by the number of tokens.

    Of h tokens there are h − n + 1 n-grams, so a text that repeats nothing has 1 − (n − 1)/h. A text shorter than n
    contributes 0, an empty one too.

    Args:
        texts: lists of tokens.
        max_order: N, at least 1.

    Returns:
        Distinct-1, …, Distinct-N, each in [0, 1].

    Raises:
        ValueError: there is no text, or `max_order` is below 1.
        TypeError: a text is a string.

    Reference: Li et al. (2016), who take all texts together; text by text, Choi et al. (2020), Sec. 4.1.6.
    """
    check_texts(texts, max_order)
    scores = []
    for order in range(1, max_order + 1):
        of_text = (len(set(ngrams(text, order))) / max(1, len(text)) for text in texts)
        scores.append(math.fsum(of_text) / len(texts))
    return scores


def repetition(texts: Sequence[Text], *, shortest_phrase: int = SHORTEST_PHRASE) -> float:
    """The share of texts that end in a phrase said at least twice in a row.

    The authors' released script takes, of all phrase lengths, the one repeated most often and asks whether that is
    3 or more tokens; here any phrase of 3 or more will do, such as `a b a b` of a text that ends in four `a b`.

    Args:
        texts: lists of tokens.
        shortest_phrase: tokens that a phrase has at least, 1 or more.

    Returns:
        In [0, 1]; a text with fewer than two phrases' tokens repeats nothing.

    Raises:
        ValueError: there is no text, or `shortest_phrase` is below 1.
        TypeError: a text is a string.

    Reference: Holtzman et al. (2020).
    """
    check_texts(texts)
    if shortest_phrase < 1:
        raise ValueError(f"expected phrases of 1 token or more, got {shortest_phrase}")
    return sum(_ends_in_repetition(text, shortest_phrase) for text in texts) / len(texts)


def unique_tokens(texts: Sequence[Text]) -> int:
    """Uniq: the number of distinct tokens in all texts together.

    Raises:
        ValueError: there is no text.
        TypeError: a text is a string.

    Reference: Welleck et al. (2020).
    """
    check_texts(texts)
    return len(set().union(*texts))


def _ends_in_repetition(text: Text, shortest_phrase: int) -> bool:
    lengths = range(shortest_phrase, len(text) // 2 + 1)
    return any(text[-length:] == text[-2 * length : -length] for length in lengths)
