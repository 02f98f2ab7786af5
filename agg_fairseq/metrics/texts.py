"""How diverse texts are, and how close to references.

A text is a list of tokens; TypeError for a string. There is at least one text on each side.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

Text = Sequence[str]
ABSENT = 1e-10  # probability in `kl_divergence` of a token that the texts of one side lack
SHORTEST_PHRASE, LONGEST_PHRASE = 3, 90
"""Number of tokens of the phrases that `repetition` looks for."""
MOST_REPEATS = 50  # a phrase that is repeated more often counts however short it is
SMOOTHING = 0.1
"""Matches that Self-BLEU counts where an order has none: method 1 of Chen and Cherry (2014), with
NLTK's ε."""


def distinct(texts: Sequence[Text], max_order: int = 3) -> list[float]:
    """Distinct-n for n = 1 to `max_order`, in [0, 1]: the mean over texts of the number of distinct
    n-grams divided by that of tokens; at most 1 − (n − 1)/h for a text of h tokens.

    Reference: Li et al. (2016), who count in all texts together; per text, Choi et al. (2020), Sec.
        4.1.6.
    """
    _refuse_strings(texts)
    scores = []
    for order in range(1, max_order + 1):
        scores.append(fmean(len(set(ngrams(text, order))) / max(1, len(text)) for text in texts))
    return scores


def repetition(texts: Sequence[Text]) -> float:
    """The share, in [0, 1], of texts that end in a repeated phrase.

    For n from 1 to 90, r_n is the number of times that the last n tokens of the text occur in a row
    at its end. With n* the length of the largest r_n, the smallest of several, the text repeats
    itself if r_n* ≥ 2 and either n* ≥ 3 or r_n* > 50. So `a b c a b c` does, but not `a a a a a a`,
    where n* = 1.

    Reference: Holtzman et al. (2020), `metrics/repetition.py` of their code.
    """
    _refuse_strings(texts)
    repeating = 0
    for text in texts:
        most, best = 1, 0  # r_n* and n*
        for length in range(1, min(LONGEST_PHRASE, len(text) // 2) + 1):
            phrase, times = text[-length:], 1
            while text[-(times + 1) * length : -times * length] == phrase:
                times += 1
            if times > most:
                most, best = times, length
        repeating += most > 1 and (best >= SHORTEST_PHRASE or most > MOST_REPEATS)
    return repeating / len(texts)


def unique_tokens(texts: Sequence[Text]) -> int:
    """Uniq: the number of distinct tokens in all texts together (Welleck et al. 2020)."""
    _refuse_strings(texts)
    return len(set().union(*texts))


def self_bleu(texts: Sequence[Text], max_order: int = 3) -> list[float]:
    """Self-BLEU-n for n = 1 to `max_order`, in [0, 1]: the mean over texts of BLEU-n with all
    others as references.

    BLEU-n = min(1, exp(1 − r/h)) · (Π_{k=1}^{n} p_k)^(1/n) for each text, with h its length, r the
    closest length of another text (the shorter of two), and p_k its clipped k-gram precision. Where
    no k-gram matches, 0.1 match is counted, out of 1 where the text is shorter than k; where no
    token matches, BLEU is 0. This is NLTK's `sentence_bleu(others, text, (1/n,) * n,
    SmoothingFunction().method1)`, in linear time. There are at least two texts.

    Reference: Zhu et al. (2018); Papineni et al. (2002).
    """
    _refuse_strings(texts)
    lengths = list(map(len, texts))
    occurrences, closest = Counter(lengths), {}
    for length, number in occurrences.items():
        others = [length] if number > 1 else occurrences.keys() - {length}
        closest[length] = min(others, key=lambda other: (abs(other - length), other))
    matches, scores = [], []
    for order in range(1, max_order + 1):
        matches.append(_clipped_matches(texts, order))  # a number per text
        text_scores = []
        for length, *counts in zip(lengths, *matches, strict=True):
            text_scores.append(_bleu(counts, length, closest[length]))
        scores.append(fmean(text_scores))
    return scores


def _bleu(matches: Sequence[int], length: int, reference_length: int) -> float:
    """BLEU of one text from its matches of orders 1, …, n."""
    if matches[0] == 0:
        return 0.0
    log_precisions = []
    for shorter, count in enumerate(matches):
        precision = (count or SMOOTHING) / max(1, length - shorter)
        log_precisions.append(math.log(precision))
    brevity = min(1.0, math.exp(1 - reference_length / length))
    return brevity * math.exp(fmean(log_precisions))


def _clipped_matches(texts: Sequence[Text], order: int) -> list[int]:
    """For each text, the number of its k-grams that match, each clipped at its highest count in any
    other text.

    Of a k-gram that occurs c times in a text, the highest count among the others is c or more if
    some text has more than c, or two texts have c; otherwise it is the second highest of all.
    """
    counts = [Counter(ngrams(text, order)) for text in texts]
    highest: dict[tuple[str, ...], int] = {}
    second: dict[tuple[str, ...], int] = {}  # equal to the highest where two texts have that
    for text_counts in counts:
        for gram, count in text_counts.items():
            best = highest.get(gram, 0)
            if count > best:
                highest[gram], second[gram] = count, best
            elif count > second[gram]:
                second[gram] = count
    matches = []
    for text_counts in counts:
        clipped = 0
        for gram, count in text_counts.items():
            clipped += count if count < highest[gram] else second[gram]
        matches.append(clipped)
    return matches


def kl_divergence(generated: Sequence[Text], references: Sequence[Text]) -> float | None:
    """KLD = Σ_v p_ref(v) log(p_ref(v) / p_gen(v)) in nats, over the tokens of either side, with p
    their relative frequencies.

    On a side that lacks a token its probability is 1e-10; the others are not changed. In [0, 23],
    or None if a side has no token. The numbers of texts may differ.

    Reference: Choi et al. (2020), Sec. 4.1.6.
    """
    gen, ref = count_ngrams(generated, 1), count_ngrams(references, 1)
    if not gen or not ref:
        return None
    terms, gen_total, ref_total = [], gen.total(), ref.total()
    for token in ref.keys() | gen.keys():
        p_ref = (ref[token] / ref_total) or ABSENT
        p_gen = (gen[token] / gen_total) or ABSENT
        terms.append(p_ref * math.log(p_ref / p_gen))
    return math.fsum(terms)


def ms_jaccard(
    generated: Sequence[Text], references: Sequence[Text], max_order: int = 3
) -> list[float | None]:
    """MS-Jaccard-n for n = 1 to `max_order`: the geometric mean of J_1, …, J_n, in [0, 1]; 1 where
    the k-grams agree.

    J_k = Σ_g min(C_gen, C_ref) / Σ_g max(C_gen, C_ref), over the k-grams g of either side, where
    C(g) is the mean number of occurrences of g per text of a side. None for the orders at which no
    text has a k-gram.

    Reference: Alihosseini et al. (2019), whose released code does not pad the texts; Choi et al.
        (2020), Sec. 4.1.6.
    """
    means: list[float | None] = [None] * max_order
    product = 1.0
    for order in range(1, max_order + 1):
        c_gen, c_ref = count_ngrams(generated, order), count_ngrams(references, order)
        smaller = 0
        for gram, count in c_gen.items():
            # whole numbers: both C, times the numbers of texts of both sides
            smaller += min(count * len(references), c_ref[gram] * len(generated))
        larger = c_gen.total() * len(references) + c_ref.total() * len(generated) - smaller
        if not larger:  # all texts are shorter than this order, and than all higher ones
            break
        product *= smaller / larger
        means[order - 1] = product ** (1 / order)
    return means


def ngrams(text: Text, order: int) -> Iterator[tuple[str, ...]]:
    """The n-grams of a text from left to right."""
    return zip(*(text[start:] for start in range(order)), strict=False)


def count_ngrams(texts: Sequence[Text], order: int) -> Counter[tuple[str, ...]]:
    """The number of occurrences of each n-gram, n at least 1, in all texts together."""
    _refuse_strings(texts)
    counts: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        counts.update(ngrams(text, order))
    return counts


def _refuse_strings(texts: Sequence[Text]) -> None:
    """Raises TypeError for a text that is a string: its tokens would be characters."""
    for text in [texts, *texts]:
        if isinstance(text, str):
            raise TypeError(
                f"expected texts that are lists of tokens, got the string {text[:40]!r}"
            )
