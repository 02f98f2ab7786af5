"""How close generated texts are to the references: KL divergence and MS-Jaccard."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .ngrams import Text, check_texts, count_ngrams

ABSENT = 1e-10
"""Probability of a token in the texts of the side that lacks it."""


def kl_divergence(generated: Sequence[Text], references: Sequence[Text]) -> float:
    """KLD = Σ_v p_ref(v) log(p_ref(v) / p_gen(v)), p the relative frequencies of the tokens of each side.

    The sum is over the tokens of either side. Where a side lacks the token its probability is 1e-10; the other
    probabilities stay as they are.

    Args:
        generated: lists of tokens.
        references: as `generated`; as many texts or not.

    Returns:
        In nats; 0 where the frequencies agree, at most log(1e10), about 23.

    Raises:
        ValueError: there are no texts on a side, or they have no token.
        TypeError: a text is a string.

    Reference: Choi et al. (2020), Sec. 4.1.6.
    """
    p_gen, p_ref = _frequencies(generated), _frequencies(references)
    pairs = [(p_ref.get(token, ABSENT), p_gen.get(token, ABSENT)) for token in p_ref.keys() | p_gen.keys()]
    return math.fsum(ref * math.log(ref / gen) for ref, gen in pairs)


def ms_jaccard(generated: Sequence[Text], references: Sequence[Text], max_order: int = 3) -> list[float]:
    """MS-Jaccard-n: the geometric mean, over k = 1, …, n, of J_k = Σ_g min(C_gen, C_ref) / Σ_g max(C_gen, C_ref).

    C(g) of a side is how often the k-gram g occurs in all its texts, divided by the number of its texts; g goes over
    the k-grams of either side. Each text has k − 1 padding symbols on each side, so that texts shorter than k count
    too. J_k is worked out in whole numbers.

    Args:
        generated: lists of tokens.
        references: as `generated`; as many texts or not.
        max_order: N, at least 1.

    Returns:
        MS-Jaccard-1, …, MS-Jaccard-N, each in [0, 1]; 1 where the k-grams agree.

    Raises:
        ValueError: there are no texts on a side, neither side has a token, or `max_order` is below 1.
        TypeError: a text is a string.

    Reference: Alihosseini et al. (2019); Choi et al. (2020), Sec. 4.1.6. Neither says whether texts are padded.
    """
    check_texts(generated, max_order)
    check_texts(references)
    if not any(map(len, [*generated, *references])):
        raise ValueError("expected texts with at least one token, got empty texts only")
    scores = [_jaccard(generated, references, order) for order in range(1, max_order + 1)]
    return [math.prod(scores[:order]) ** (1 / order) for order in range(1, max_order + 1)]


def _frequencies(texts: Sequence[Text]) -> dict[tuple[str | None, ...], float]:
    """The unigrams and their relative frequencies."""
    check_texts(texts)
    counts = count_ngrams(texts, 1)
    total = sum(counts.values())
    if total == 0:
        raise ValueError("expected texts with at least one token, got empty texts only")
    return {token: count / total for token, count in counts.items()}


def _jaccard(generated: Sequence[Text], references: Sequence[Text], order: int) -> float:
    """J_k, both fractions multiplied by the number of texts of the two sides."""
    c_gen, c_ref = (count_ngrams(texts, order, padded=True) for texts in (generated, references))
    grams = c_gen.keys() | c_ref.keys()
    pairs = [(c_gen.get(gram, 0) * len(references), c_ref.get(gram, 0) * len(generated)) for gram in grams]
    return sum(map(min, pairs)) / sum(map(max, pairs))
