"""Frequency groups: `agg-fairseq groups`, counted by hand in small texts; and that measures, gates
and freezing agree on what is rare."""

import math
import re
import shutil

import pytest
import torch

from agg_fairseq.data.binarized import count_split, load_dictionary
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.evaluation import group_shares
from agg_fairseq.evaluation.group_shares import prediction
from agg_fairseq.functional import rare_tokens, rarest
from tests.commands import binarized, cells, run
from tests.small_trainings import build
from tests.small_transformers import save_word_tokenizer


def test_shares_of_a_binarized_text(lm_data, tmp_path):
    """valid1 is no part of valid, as train1 is of train."""
    data = shutil.copytree(lm_data, tmp_path / "data")
    for ending in ("bin", "idx"):
        shutil.copy(data / f"test.{ending}", data / f"valid1.{ending}")
    result, vocabulary = group_shares(data), BinarizedVocabulary.load(lm_data)
    rare = vocabulary.groups("types").members("rare")
    for split in ("train", "valid", "test"):
        counts = count_split(lm_data, load_dictionary(lm_data), split)
        share = (counts[rare].sum() / counts.sum()).item()
        assert result["rare"]["target_share"][split] == pytest.approx(share)
    assert result["total"]["types"] == (vocabulary.counts > 0).sum(), "with special tokens"


def test_shares_of_pairs_and_of_a_text_with_a_tokenizer(mt_data, tmp_path, monkeypatch):
    # of the target side
    counted = group_shares(mt_data)
    assert counted["total"]["target_share"]["train"] == pytest.approx(1)
    assert "|pairs:en-de|" in counted.signature
    pytest.importorskip("tokenizers")
    save_word_tokenizer(tmp_path, 6)
    (tmp_path / "train.txt").write_text("w0 w0 w0 w0 w1 w1 w1 w2 w2 w3\n")
    monkeypatch.chdir(tmp_path)
    options = "--tokenizer . --rare-fraction 0.4 --tokens-per-update 2"
    table = cells(run("groups", "train.txt", options))
    for row, expected in (
        ("frequent", "1 4 4 40.00 1.2"),
        ("rare", "1 1 1 10.00 5.0"),
        ("rarest 40%", "2 1 2 30.00 3.3"),
        ("total", "4 1 4 100.00 2.0"),
        ("unseen", "1 0 0 0.00 —"),
    ):
        assert " ".join(table[row].values()).startswith(expected), table[row]
    counted = group_shares("train.txt", tokenizer=".", tokens_per_update=1, beta2=0.7)
    found = counted["forgotten with β₂ = 0.7"]
    assert (found["types"], counted["forgotten with β₂ = 0.95"]["types"]) == (1, 0)
    # w0, 4 of 10 targets, comes back after 3.03 updates; the half-life is 2.31
    assert found["target_share"]["train.txt"] == pytest.approx(0.4)
    change = (math.log(2) / 0.3 * (1 - math.exp(-0.4))) ** 0.4 - 1
    assert found["change_by_beta2"] == pytest.approx(change, rel=1e-9)
    words = "s = 40.0%: β₂ = 0.999 changes the perplexity by -10.3% by the rule, of W alone by -15.2%; s above 30%"
    assert counted.facts["prediction"].startswith(words)
    with (tmp_path / "train.txt").open("a") as file:
        file.write("w4\n")  # all of them, so none is unknown
    counted = group_shares("train.txt", tokenizer=".", tokens_per_update=1, beta2=0.7)
    said = counted.facts["prediction"]
    assert said.startswith("s = 36.4%") and "of targets that" not in said


@pytest.mark.parametrize(
    ("change", "s", "words"),
    [
        (0.0, 0.12, "s = 12.0%: no larger β₂ was measured: keep β₂"),
        (-0.014, 0.01, "of W alone by -5.8%; with s of 1% to 5%, -0.6% to -6.6% was measured"),
        (-0.708, 0.3, "-70.8% by the rule; s above 30% was never measured"),
    ],
)
def test_a_prediction_is_what_was_measured(change, s, words):
    assert prediction(change, s, 100_000, 8, 0.005).endswith(words)
    if 100 * s >= 1 and change:
        doubtful = prediction(change, s, 99_999, 8.5, 0.0051)
        for caveat in ("without the 0.5% of targets", "below 100,000 tokens", "more than 8 epochs"):
            assert caveat in doubtful


def test_the_window_and_alpha_of_a_text(lm_data):
    """K = 2N, and the α with which the same tokens are rare in an epoch."""
    vocabulary = BinarizedVocabulary.load(lm_data)
    counts, excluded = vocabulary.counts, vocabulary.excluded
    result = group_shares(lm_data, tokens_per_update=8, rare_fraction=0.9)
    window, fraction, alpha = map(float, re.findall(r" ([\d.]+)(?= |,|$)", result.facts["window"]))
    assert window == math.ceil(2 * result["rarest 90%"]["updates_per_occurrence"])
    rare = rare_tokens(counts, counts.sum() / 8, alpha=alpha, excluded=excluded)
    assert rare.equal(rarest(counts, fraction, excluded)) and fraction == 0.9
    printed = run("groups", lm_data, "--tokens-per-update 8 --beta2 0.999")
    assert "\nnothing is forgotten: keep β₂\n" in printed and "AGG" not in printed
    printed = run("groups", lm_data, "--tokens-per-update 8")
    assert re.search(r"no useful window, since the rarest 30% return every \d+ updates", printed)


def test_what_is_rare_is_the_same_everywhere(lm_data, tmp_path):
    """Words that only the dictionary has, whose gate is 0, are rare in training and unseen in
    measures; fillers are neither."""
    text = ["w0 w1 w0 w9", "w1 w0 w3 w2 w2 w5 never"] * 3
    data = binarized(tmp_path, text, f"--srcdict={lm_data / 'dict.txt'}")
    vocabulary = BinarizedVocabulary.load(data)
    counts, groups = vocabulary.counts, vocabulary.groups("types")
    is_word = [not token.startswith(("<", "madeupword")) for token in vocabulary.tokens]
    is_unseen = (counts == 0) & torch.tensor(is_word)
    assert groups.members("unseen").equal(is_unseen.nonzero().squeeze(1))
    expected = is_unseen.index_fill(0, groups.members("rare"), True)
    agg = build(data, "--criterion agg --agg-rare-fraction 0.2").criterion
    frozen = build(data, "--criterion freeze_rare --freeze-fraction 0.2").criterion
    frozen.on_training_data(1)
    agg.gating.counter.add(counts.nonzero().squeeze(1).repeat_interleave(counts[counts > 0]))
    agg.gating.counter.commit()
    gates = agg.gating.gates(None)
    assert is_unseen.any() and not is_unseen.equal(expected)
    assert gates.rare.equal(expected) and frozen.rare.equal(expected)
    assert not gates.g1[is_unseen].any() and not gates.g2[is_unseen].any()
