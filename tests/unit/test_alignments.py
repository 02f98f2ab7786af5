import numpy as np
import pytest
import torch

from agg_fairseq.data import alignments
from agg_fairseq.data.alignments import read_links, sentences
from agg_fairseq.data.binarized import Sentences, training_pair
from agg_fairseq.errors import UserError

EOS = 2
SOURCE, TARGET = [[4, 5, 6], [5], [4, 4]], [[7, 8], [7], [8, 7, 9]]


def build_side(texts):
    texts = list(texts)
    return Sentences(np.array(sum(texts, [])), np.cumsum(list(map(len, texts))))


def parse_lines(folder, text):
    (folder / "links").write_bytes(text)
    sides = [build_side([*sentence, EOS] for sentence in side) for side in (SOURCE, TARGET)]
    found = read_links(folder / "links", sides)
    assert {column.dtype for column in vars(found).values()} == {torch.int64}
    pairs = zip(found.source.tolist(), found.target.tolist(), strict=True)
    return dict(zip(pairs, found.count.tolist(), strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Pair 1: 4-8, 6-7. Pair 2: 5-7. Pair 3: 4-8, and 4 (the second) with 8 and 9.
        (b"0-1 2-0\n0-0\n0-0 1-0 1-2\n", {(4, 8): 3, (6, 7): 1, (5, 7): 1, (4, 9): 1}),
        (b"\r\n0-0 \r\n\r\n", {(5, 7): 1}),
        (b"\n\n1-2", {(4, 9): 1}),
        (b"\n\n1-2\t000000001-0\n", {(4, 9): 1, (4, 8): 1}),
    ],
)
def test_read_links_by_hand(tmp_path, text, expected):
    assert parse_lines(tmp_path, text) == expected


def test_only_an_eos_at_the_end_is_left_out():
    side = build_side([[4, EOS, 5, EOS], [4, 5], [EOS]])
    assert list(sentences(side)) == [[4, EOS, 5], [4, 5], []]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"0-0\n0-0\n", "links: found too few lines"),
        (b"\n\n\n0-0\n", "links: found more lines"),
        (b"\n\n\n", "links: found no link"),
        (b"0-0\n0-1\n0-0\n", "line 2: found '0-1'; .* between 1 source and 1 target"),  # its eos
        *(
            (f"0-0\n{bad}\n\n".encode(), f"links, line 2: found '{bad}'")
            for bad in ("1p0", "0-", "0 0", "0-0-0", "0--0", "0-0 -0", f"{10**19}-0")
        ),
    ],
)
def test_links_of_other_sentences_are_refused(tmp_path, text, words):
    with pytest.raises(UserError, match=words):
        parse_lines(tmp_path, text)


def test_sides_of_different_lengths_are_refused(monkeypatch):
    """In a part, though they are as long in all."""
    sides = iter([build_side(SOURCE)._replace(numbers=one) for one in ((2, 1), (1, 2))])
    monkeypatch.setattr(alignments, "load_dictionary", lambda *_: None)
    monkeypatch.setattr(alignments, "load_sentences", lambda *_: next(sides))
    with pytest.raises(UserError, match=r"found sentences \(2, 1\) of en and \(1, 2\) of de"):
        alignments.load_parallel("data", ("en", "de"))


def test_training_pair_by_the_names_of_files(tmp_path):
    def add(pair, *languages):
        for language in languages:
            (tmp_path / f"train.{pair}.{language}.bin").touch()

    add("en-de", "en", "de")
    assert training_pair(tmp_path) == training_pair(tmp_path, "en", "de") == ("en", "de")
    add("de-en", "de", "en")
    add("en-fr", "en", "fr")
    add("zh-Hans-zh-Hant", "zh-Hans", "zh-Hant")  # a hyphen within a language
    assert training_pair(tmp_path, target="fr") == ("en", "fr")
    assert training_pair(tmp_path, "de") == ("de", "en")
    assert training_pair(tmp_path, target="zh-Hant") == ("zh-Hans", "zh-Hant")
    with pytest.raises(UserError, match="found en-de, en-fr; expected one train.en-Y.en.bin"):
        training_pair(tmp_path, "en")
    with pytest.raises(UserError, match="found de-en, en-de, en-fr, .*; expected one train.fr-Y"):
        training_pair(tmp_path, "fr")
