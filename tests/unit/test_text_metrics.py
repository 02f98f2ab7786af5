"""The measures of generated text on cases worked by hand, against NLTK and against slow forms of themselves."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from agg_fairseq.metrics import (
    distinct,
    frequency_mass_groups,
    group_shares,
    kl_divergence,
    ms_jaccard,
    repetition,
    self_bleu,
    unique_tokens,
)

TEXTS = st.lists(st.lists(st.sampled_from("abc"), max_size=7), min_size=2, max_size=6)
OF_TEXTS = (self_bleu, distinct, repetition, unique_tokens)
OF_PAIRS = (kl_divergence, ms_jaccard)


def cut(*texts):
    return [text.split() for text in texts]


def test_kl_divergence_by_hand():
    """References: a 2/3, b 1/3. Generated: a 1/4, b 1/4, c 1/2, and c is 1e-10 in the references."""
    expected = 2 / 3 * math.log(8 / 3) + 1 / 3 * math.log(4 / 3) + 1e-10 * math.log(2e-10)
    assert kl_divergence(cut("a c", "b c"), cut("a b a")) == pytest.approx(expected, rel=1e-12)


def test_ms_jaccard_by_hand():
    """One generated text, `a b`, and two references, whose counts are halved.

    1: a 1 and 1, b 1 and ½, c 0 and ½: (1 + ½) / (1 + 1 + ½) = 3/5.
    2: ab 1 and ½, ac 0 and ½: ½ / 1½ = 1/3. No text has a 3-gram.
    """
    expected = [pytest.approx(0.6), pytest.approx((0.6 / 3) ** (1 / 2)), None]
    assert ms_jaccard(cut("a b"), cut("a b", "a c")) == expected


def test_self_bleu_by_hand():
    """`a b c`: r = 3, h = 3; a and b of a, b, c; ab of ab, bc; of abc none, so 0.1.

    `a b`: r = 3, h = 2, brevity e^(1 − 3/2); both tokens; ab; no 3-gram, so 0.1 of 1.
    `a a b`: r = 3, h = 3; a counts once, for no other has two, and b; ab of aa, ab; of aab none, so 0.1.
    """
    brevity = math.exp(-1 / 2)
    expected = [
        (2 / 3 + brevity + 2 / 3) / 3,
        (2 * (2 / 3 * 1 / 2) ** (1 / 2) + brevity) / 3,
        (2 * (2 / 3 * 1 / 2 * 0.1) ** (1 / 3) + brevity * 0.1 ** (1 / 3)) / 3,
    ]
    assert self_bleu(cut("a b c", "a b", "a a b")) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("x a b c a b c", True),
        ("a b c a b c x", False),
        ("a b c x a b c", False),
        ("x a b a b", False),
        ("a b a b a b a b", False),  # `a b` four times, and `a b a b` only twice
        ("x a b c x a b c x a b c", True),
        ("a " * 50, False),
        ("a " * 51, True),
        ("x" + " a b" * 50, False),
        ("x" + " a b" * 51, True),
        (" ".join(map(str, range(90))) + " " + " ".join(map(str, range(90))), True),
        (" ".join(map(str, range(91))) + " " + " ".join(map(str, range(91))), False),  # phrases have 90 tokens or fewer
        ("", False),
    ],
)
def test_repetition(text, repeats):
    assert repetition(cut(text)) == repeats
    assert repetition(cut(text, "a", "b", "c")) == repeats / 4


def repeats_by_the_script(text):
    """The rule of Holtzman et al.'s metrics/repetition.py: counts from the end, and takes the first largest count."""
    reverse, counts = text[::-1], []
    for n in range(1, 91):
        count = 1
        while len(reverse[n * count : n * (count + 1)]) == n and reverse[n * count : n * (count + 1)] == reverse[:n]:
            count += 1
        counts.append(count)
    n = counts.index(max(counts)) + 1
    return max(counts) > 1 and (n >= 3 or max(counts) > 50)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from("ab"), max_size=4), st.lists(st.sampled_from("abc"), max_size=5), st.integers(0, 55))
def test_repetition_against_the_rule_of_the_script(start, phrase, times):
    text = start + phrase * times
    assert repetition([text]) == repeats_by_the_script(text)


def test_unique_tokens():
    assert unique_tokens(cut("a b a", "b c", "")) == 3


def test_mass_groups_by_hand():
    """Of 100 tokens, by rank: 35 from 0, 30 from 35, 15 from 65, 10 from 80, 10 from 90, and one never seen.

    40, 70 and 90 are the borders, so the second is still frequent, and the fifth very rare.
    """
    groups = frequency_mass_groups(torch.tensor([10, 0, 35, 15, 10, 30]))
    assert {name: groups.members(name).tolist() for name in groups.names} == {
        "frequent": [2, 5],
        "medium": [3],
        "rare": [0],
        "very rare": [1, 4],
    }
    shares = group_shares(torch.tensor([2, 2, 5, 1]), groups)
    assert shares == {"frequent": 0.75, "medium": 0, "rare": 0, "very rare": 0.25}


def bleu_of_nltk(texts, order):
    """The mean over texts, each against all others."""
    method = SmoothingFunction().method1
    pairs = [(texts[:index] + texts[index + 1 :], text) for index, text in enumerate(texts)]
    scores = [sentence_bleu(others, text, (1 / order,) * order, method) for others, text in pairs]
    return sum(scores) / len(scores)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_self_bleu_against_nltk(texts):
    assert self_bleu(texts, 4) == pytest.approx([bleu_of_nltk(texts, order) for order in (1, 2, 3, 4)], abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(TEXTS.filter(any), TEXTS.filter(any))
def test_ranges(texts, references):
    likeness = ms_jaccard(texts, references)
    scores = [
        *self_bleu(texts),
        *distinct(texts),
        repetition(texts),
        *(score for score in likeness if score is not None),
    ]
    assert all(0 <= score <= 1 + 1e-12 for score in scores)
    assert likeness == ms_jaccard(references, texts)
    assert ms_jaccard(texts, texts) == [1 if any(len(text) >= n for text in texts) else None for n in (1, 2, 3)]
    assert kl_divergence(texts, texts) == 0
    assert kl_divergence(texts, references) < math.log(1e10) + 1e-9


@pytest.mark.parametrize(
    ("texts", "bleu", "varied", "repeats", "uniq"),
    [
        (cut("", ""), [0, 0, 0], [0, 0, 0], 0, 0),
        (cut("a", "b"), [0, 0, 0], [1, 0, 0], 0, 2),
        # shorter than n: 0.1 match of 1
        (cut("a", "a"), [1, 0.1 ** (1 / 2), 0.01 ** (1 / 3)], [1, 0, 0], 0, 1),
        # all tokens the same: 6 of a, 5 of aa, 4 of aaa
        (cut(*["a a a a a a"] * 3), [1, 1, 1], [1 / 6, 1 / 6, 1 / 6], 0, 1),
        # an empty text has BLEU 0, and is no reference that helps
        (cut("a b c", "a b c", ""), [2 / 3, 2 / 3, 2 / 3], [2 / 3, 4 / 9, 2 / 9], 0, 3),
    ],
)
def test_degenerate_texts(texts, bleu, varied, repeats, uniq):
    assert self_bleu(texts) == pytest.approx(bleu)
    assert distinct(texts) == pytest.approx(varied)
    assert repetition(texts) == repeats
    assert unique_tokens(texts) == uniq


def test_likeness_to_empty_texts():
    assert ms_jaccard(cut(""), cut("a b")) == [0, 0, None]
    for measure in OF_PAIRS:
        with pytest.raises(ValueError, match="at least one token"):
            measure(cut(""), cut("", ""))
    for pair in [(cut(""), cut("a")), (cut("a"), cut(""))]:
        with pytest.raises(ValueError, match="at least one token"):
            kl_divergence(*pair)


def test_bad_texts():
    for measure in OF_TEXTS:
        with pytest.raises(ValueError, match="at least one text, got none"):
            measure([])
        with pytest.raises(TypeError, match="got the string 'a b'"):
            measure(["a b", "a c"])
    for measure in OF_PAIRS:
        with pytest.raises(ValueError, match="at least one text, got none"):
            measure(cut("a"), [])
        with pytest.raises(TypeError, match="got the string"):
            measure(cut("a"), "a b")
    with pytest.raises(ValueError, match="order 1 or more, got 0"):
        self_bleu(cut("a b", "a c"), 0)
