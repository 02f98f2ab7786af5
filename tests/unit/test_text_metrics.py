import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from agg_fairseq.metrics import (
    distinct,
    kl_divergence,
    ms_jaccard,
    repetition,
    self_bleu,
    unique_tokens,
)

TEXTS = st.lists(st.lists(st.sampled_from("abc"), max_size=7), min_size=2, max_size=6)


def cut(*texts):
    return [text.split() for text in texts]


def test_kl_divergence_by_hand():
    """References: a 2/3, b 1/3. Generated: a 1/4, b 1/4, c 1/2, and c is 1e-10 in the
    references."""
    expected = 2 / 3 * math.log(8 / 3) + 1 / 3 * math.log(4 / 3) + 1e-10 * math.log(2e-10)
    assert kl_divergence(cut("a c", "b c"), cut("a b a")) == pytest.approx(expected, rel=1e-12)


def test_ms_jaccard_by_hand():
    """The counts of two references for one generated text are halved; no text has a 3-gram."""
    # a 1 and 1, b 1 and ½, c 0 and ½: (1 + ½) / (1 + 1 + ½) = 3/5; ab 1 and ½, ac 0 and ½: ½ / 1½ =
    # 1/3
    expected = [pytest.approx(0.6), pytest.approx((0.6 / 3) ** (1 / 2)), None]
    assert ms_jaccard(cut("a b"), cut("a b", "a c")) == expected


def repeats_by_the_script(text):
    """The rule of Holtzman et al.'s metrics/repetition.py: counts from the end, and takes the first
    largest count."""
    reverse, counts = text[::-1], []
    for n in range(1, 91):
        count = 1
        while reverse[n * count : n * (count + 1)] == reverse[:n] and len(reverse) >= n * (
            count + 1
        ):
            count += 1
        counts.append(count)
    n = counts.index(max(counts)) + 1
    return max(counts) > 1 and (n >= 3 or max(counts) > 50)


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from("ab"), max_size=4),
    st.lists(st.sampled_from("abc"), max_size=5),
    st.integers(0, 55),
)
@example([], list(range(90)), 2)  # phrases have 90 tokens or fewer
@example([], list(range(91)), 2)
@example([], ["a"], 50)
@example([], ["a"], 51)
def test_repetition_against_the_rule_of_the_script(start, phrase, times):
    text = start + phrase * times
    assert repetition([text, ["a"], ["b"], ["c"]]) == repeats_by_the_script(text) / 4


def bleu_of_nltk(texts, order):
    total, weights = 0.0, (1 / order,) * order
    for index, text in enumerate(texts):
        others = texts[:index] + texts[index + 1 :]
        total += sentence_bleu(others, text, weights, SmoothingFunction().method1)
    return total / len(texts)


@settings(max_examples=100)
@given(TEXTS)
def test_self_bleu_against_nltk(texts):
    found = self_bleu(texts, 4)
    expected = [bleu_of_nltk(texts, order) for order in (1, 2, 3, 4)]
    assert found == pytest.approx(expected, abs=1e-9)
    assert self_bleu(texts) == found[:3]


@given(TEXTS.filter(any), TEXTS.filter(any))
def test_ranges_of_text_metrics(texts, references):
    likeness = ms_jaccard(texts, references)
    for score in likeness:
        assert score is None or 0 <= score <= 1 + 1e-12
    assert likeness == ms_jaccard(references, texts)
    longest = max(map(len, texts))
    assert ms_jaccard(texts, texts) == [1 if longest >= n else None for n in (1, 2, 3)]
    assert kl_divergence(texts, texts) == 0
    assert kl_divergence(texts, references) < math.log(1e10) + 1e-9


@pytest.mark.parametrize(
    ("texts", "varied", "uniq"),
    [
        (cut("", ""), [0, 0, 0], 0),
        (cut("a", "b"), [1, 0, 0], 2),
        (cut(*["a a a a a a"] * 3), [1 / 6, 1 / 6, 1 / 6], 1),  # 6 of a, 5 of aa, 4 of aaa
        (cut("a b c", "a b c", ""), [2 / 3, 4 / 9, 2 / 9], 3),
    ],
)
def test_distinct_and_unique_tokens_by_hand(texts, varied, uniq):
    assert distinct(texts) == pytest.approx(varied) and unique_tokens(texts) == uniq


def test_likeness_to_empty_texts():
    empty, full = cut(""), cut("a b")
    assert ms_jaccard(empty, full) == [0, 0, None] and ms_jaccard(empty, empty) == [None] * 3
    assert kl_divergence(empty, full) is None and kl_divergence(full, empty) is None
