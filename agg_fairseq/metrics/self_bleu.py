"""Self-BLEU: how alike texts are, in time linear in their tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from .ngrams import Text, check_texts, ngrams

SMOOTHING = 0.1
"""Counts as that many matches of an order without any: method 1 of Chen and Cherry (2014), with NLTK's ε."""


def self_bleu(texts: Sequence[Text], max_order: int = 3) -> list[float]:
    """Self-BLEU-n: the mean over texts of BLEU-n of a text with all others as its references.

    BLEU-n = min(1, exp(1 − r/h)) · (Π_{k=1}^{n} p_k)^(1/n) of each text by itself: h its length, r the length of
    another text that is closest to h (the shorter of two), p_k its clipped k-gram precision. Where no k-gram matches,
    0.1 match is counted, of 1 where the text is shorter than k; where no token matches, BLEU is 0. As NLTK says it:
    `sentence_bleu(others, text, (1/n,) * n, SmoothingFunction().method1)`.

    The references of a text need not be looked at one by one. A k-gram that occurs c times in it is clipped at the
    highest count among the others. That is c or more if some text has more than c, or if two have c; else the text
    alone holds the highest count of all, and the limit is the second highest.

    Args:
        texts: at least two lists of tokens.
        max_order: N, at least 1.

    Returns:
        Self-BLEU-1, …, Self-BLEU-N, each in [0, 1]; 1 where the texts are the same.

    Raises:
        ValueError: there are fewer than two texts, or `max_order` is below 1.
        TypeError: a text is a string.

    Reference: Zhu et al. (2018); Papineni et al. (2002).
    """
    check_texts(texts, max_order)
    if len(texts) < 2:
        raise ValueError("expected at least two texts, since each is compared with the others, got one")
    lengths = [len(text) for text in texts]
    closest = _closest_lengths(lengths)
    matches = [_clipped_matches(texts, order) for order in range(1, max_order + 1)]  # N lists, a number per text
    scores = []
    for order in range(1, max_order + 1):
        of_text = zip(lengths, *matches[:order], strict=True)
        scores.append(math.fsum(_bleu(found, h, closest[h]) for h, *found in of_text) / len(texts))
    return scores


def _clipped_matches(texts: Sequence[Text], order: int) -> list[int]:
    """How many k-grams of each text are matched by the text that matches them best, of the others."""
    counts = [Counter(ngrams(text, order)) for text in texts]
    highest: dict[tuple[str | None, ...], int] = {}
    second: dict[tuple[str | None, ...], int] = {}  # equal to the highest where two texts hold that
    for of_text in counts:
        for gram, count in of_text.items():
            best = highest.get(gram, 0)
            if count > best:
                highest[gram], second[gram] = count, best
            elif count > second[gram]:
                second[gram] = count
    return [sum(count if count < highest[g] else second[g] for g, count in of_text.items()) for of_text in counts]


def _closest_lengths(lengths: Sequence[int]) -> dict[int, int]:
    """For each length, that of another text that is closest to it, the shorter of two."""
    occurrences = Counter(lengths)
    ranked = sorted(occurrences)
    closest = {}
    for index, length in enumerate(ranked):
        others = [length] if occurrences[length] > 1 else ranked[max(0, index - 1) : index] + ranked[index + 1 :][:1]
        closest[length] = min(others, key=lambda other: abs(other - length))
    return closest


def _bleu(matches: Sequence[int], length: int, reference_length: int) -> float:
    """BLEU of one text from its matches of orders 1, …, n."""
    if matches[0] == 0:
        return 0.0
    precisions = [(found or SMOOTHING) / max(1, length - shorter) for shorter, found in enumerate(matches)]
    brevity = min(1.0, math.exp(1 - reference_length / length))
    return brevity * math.exp(math.fsum(map(math.log, precisions)) / len(precisions))
