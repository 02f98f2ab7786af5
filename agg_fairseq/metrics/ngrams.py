"""n-grams of texts, and how close those of generated texts are to the references': KL divergence and MS-Jaccard.

A text is a list of tokens. The measures raise TypeError for a string, and ValueError where a side has no text,
or no token (`ms_jaccard`: where neither has one).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

Text = Sequence[str]
ABSENT = 1e-10  # probability in `kl_divergence` of a token that the texts of one side lack


def ngrams(text: Text, order: int) -> Iterator[tuple[str, ...]]:
    """The n-grams of a text from left to right: len(text) − order + 1 of them, none of a shorter text."""
    return zip(*(text[start:] for start in range(order)), strict=False)


def count_ngrams(texts: Iterable[Text], order: int) -> Counter[tuple[str, ...]]:
    """The number of occurrences of each n-gram, n at least 1, in all texts together."""
    return Counter(gram for text in texts for gram in ngrams(text, order))


def check_texts(texts: Sequence[Text]) -> None:
    """Raises TypeError for a text that is a string, ValueError for no text."""
    if len(texts) == 0:
        raise ValueError("expected at least one text, got none")
    string = next((text for text in [texts, *texts] if isinstance(text, str)), None)
    if string is not None:
        raise TypeError(f"expected texts that are lists of tokens, got the string {string[:40]!r}")


def kl_divergence(generated: Sequence[Text], references: Sequence[Text]) -> float:
    """KLD = Σ_v p_ref(v) log(p_ref(v) / p_gen(v)) in nats, with p the relative frequencies of tokens on each side.

    The sum is over the tokens of either side. On a side that lacks a token its probability is 1e-10; the other
    probabilities are not changed. So it is 0 where the frequencies agree, and at most log(1e10), about 23. The numbers
    of texts may differ.

    Reference: Choi et al. (2020), Sec. 4.1.6.
    """
    p_gen, p_ref = _frequencies(generated), _frequencies(references)
    pairs = [(p_ref.get(token, ABSENT), p_gen.get(token, ABSENT)) for token in p_ref.keys() | p_gen.keys()]
    return math.fsum(ref * math.log(ref / gen) for ref, gen in pairs)


def ms_jaccard(generated: Sequence[Text], references: Sequence[Text], max_order: int = 3) -> list[float | None]:
    """MS-Jaccard-n for n = 1 to `max_order`: the geometric mean of J_1, …, J_n, in [0, 1]; 1 where the k-grams agree.

    J_k = Σ_g min(C_gen, C_ref) / Σ_g max(C_gen, C_ref), over the k-grams g of either side, where C(g) of a side is the
    number of occurrences of g in all its texts, divided by the number of its texts. J_k is computed in whole numbers.
    None for the orders at which no text of either side has a k-gram.

    Reference: Alihosseini et al. (2019), whose released code does not pad the texts; Choi et al. (2020), Sec. 4.1.6.
    """
    check_texts(generated)
    check_texts(references)
    if not any(map(len, [*generated, *references])):
        raise ValueError("expected texts with at least one token, got empty texts only")
    scores: list[float] = []
    for order in range(1, max_order + 1):
        c_gen, c_ref = (count_ngrams(texts, order) for texts in (generated, references))
        # Both fractions C times the number of texts of both sides are whole numbers.
        pairs = [(c_gen[g] * len(references), c_ref[g] * len(generated)) for g in c_gen.keys() | c_ref.keys()]
        if not pairs:  # all texts are shorter than this order, and than all higher ones
            break
        scores.append(sum(map(min, pairs)) / sum(map(max, pairs)))
    means: list[float | None] = [math.prod(scores[:order]) ** (1 / order) for order in range(1, len(scores) + 1)]
    return means + [None] * (max_order - len(scores))


def _frequencies(texts: Sequence[Text]) -> dict[tuple[str, ...], float]:
    check_texts(texts)
    counts = count_ngrams(texts, 1)
    total = counts.total()
    if total == 0:
        raise ValueError("expected texts with at least one token, got empty texts only")
    return {token: count / total for token, count in counts.items()}
