"""How diverse texts are, each by itself and together: Distinct, Repetition, Uniq, Self-BLEU.

A text is a list of tokens. The functions raise TypeError for a string, and ValueError where there is no text.
"""

import math
from collections import Counter
from collections.abc import Sequence

from .ngrams import Text, check_texts, ngrams

SHORTEST_PHRASE, LONGEST_PHRASE = 3, 90
"""Number of tokens of the phrases that `repetition` looks for. Shorter ones count if they are repeated often enough."""
OFTEN = 50  # a phrase that is repeated more often than this counts in `repetition`, however short it is
SMOOTHING = 0.1
"""Matches that Self-BLEU counts where an order has none: method 1 of Chen and Cherry (2014), with NLTK's ε."""


def distinct(texts: Sequence[Text], max_order: int = 3) -> list[float]:
    """Distinct-n for n = 1 to `max_order`, in [0, 1]: the mean over texts of distinct n-grams divided by tokens.

    A text of h tokens has h − n + 1 n-grams, so one that repeats nothing has a value of 1 − (n − 1)/h. A text shorter
    than n, or empty, has 0.

    Reference: Li et al. (2016), who count in all texts together; per text, Choi et al. (2020), Sec. 4.1.6.
    """
    check_texts(texts)
    scores = []
    for order in range(1, max_order + 1):
        of_text = (len(set(ngrams(text, order))) / max(1, len(text)) for text in texts)
        scores.append(math.fsum(of_text) / len(texts))
    return scores


def repetition(texts: Sequence[Text]) -> float:
    """The share, in [0, 1], of texts that end in a repeated phrase, by the rule of Holtzman et al.'s released script.

    For each length n from 1 to 90 tokens, r_n is the number of times that the last n tokens of the text occur in a row
    at its end. Let n* be the length with the largest r_n, the smallest of several. The text repeats itself if r_n* ≥ 2
    and either n* ≥ 3 or r_n* > 50. So `a b c a b c` does. `a a a a a a` does not, because n* = 1: the phrase `a a a`
    also occurs twice, but `a` occurs six times, which is not more than 50.

    Reference: Holtzman et al. (2020), `metrics/repetition.py` of their code.
    """
    check_texts(texts)
    repeating = 0
    for text in texts:
        most, best = 1, 0  # r_n* and n*
        for length in range(1, min(LONGEST_PHRASE, len(text) // 2) + 1):
            phrase, times = text[-length:], 1
            while text[-(times + 1) * length : -times * length] == phrase:
                times += 1
            if times > most:
                most, best = times, length
        repeating += most > 1 and (best >= SHORTEST_PHRASE or most > OFTEN)
    return repeating / len(texts)


def unique_tokens(texts: Sequence[Text]) -> int:
    """Uniq: the number of distinct tokens in all texts together (Welleck et al. 2020)."""
    check_texts(texts)
    return len(set().union(*texts))


def self_bleu(texts: Sequence[Text], max_order: int = 3) -> list[float]:
    """Self-BLEU-n for n = 1 to `max_order`, in [0, 1]: the mean over texts of BLEU-n with all others as references.

    BLEU-n = min(1, exp(1 − r/h)) · (Π_{k=1}^{n} p_k)^(1/n) for each text, with h its length, r the length of another
    text that is closest to h (the shorter of two), and p_k its clipped k-gram precision. Where no k-gram matches, 0.1
    match is counted, out of 1 where the text is shorter than k; where no token matches, BLEU is 0. This is NLTK's
    `sentence_bleu(others, text, (1/n,) * n, SmoothingFunction().method1)`, in time linear in the tokens of all texts.
    ValueError for fewer than two texts.

    Reference: Zhu et al. (2018); Papineni et al. (2002).
    """
    check_texts(texts)
    if len(texts) < 2:
        raise ValueError("expected at least two texts, since each is compared with the others, got one")
    lengths = [len(text) for text in texts]
    closest = _closest_lengths(lengths)
    matches = [_clipped_matches(texts, order) for order in range(1, max_order + 1)]  # N lists, a number per text
    scores = []
    for order in range(1, max_order + 1):
        of_text = zip(lengths, *matches[:order], strict=True)
        scores.append(math.fsum(_bleu(counts, h, closest[h]) for h, *counts in of_text) / len(texts))
    return scores


def _clipped_matches(texts: Sequence[Text], order: int) -> list[int]:
    """For each text, the number of its k-grams that match, each clipped at its highest count in any other text.

    The other texts need not be compared one by one. A k-gram that occurs c times in a text is clipped at the highest
    count among the others. That is c or more if some text has more than c, or if two texts have c; otherwise this text
    alone has the highest count of all, and the limit is the second highest.
    """
    counts = [Counter(ngrams(text, order)) for text in texts]
    highest: dict[tuple[str | None, ...], int] = {}
    second: dict[tuple[str | None, ...], int] = {}  # equal to the highest where two texts have that
    for of_text in counts:
        for gram, count in of_text.items():
            best = highest.get(gram, 0)
            if count > best:
                highest[gram], second[gram] = count, best
            elif count > second[gram]:
                second[gram] = count
    return [sum(count if count < highest[g] else second[g] for g, count in of_text.items()) for of_text in counts]


def _closest_lengths(lengths: Sequence[int]) -> dict[int, int]:
    """For each length, the closest length of another text; of two that are equally close the shorter."""
    occurrences, closest = Counter(lengths), {}
    for length, texts in occurrences.items():  # n lengths are of n²/2 tokens or more: a linear cost
        others = [length] if texts > 1 else occurrences.keys() - {length}
        closest[length] = min(others, key=lambda other: (abs(other - length), other))
    return closest


def _bleu(matches: Sequence[int], length: int, reference_length: int) -> float:
    """BLEU of one text from its matches of orders 1, …, n."""
    if matches[0] == 0:
        return 0.0
    precisions = [(count or SMOOTHING) / max(1, length - shorter) for shorter, count in enumerate(matches)]
    brevity = min(1.0, math.exp(1 - reference_length / length))
    return brevity * math.exp(math.fsum(map(math.log, precisions)) / len(precisions))
