"""The counts of the target tokens of a training split."""

import shutil

import torch

from agg_fairseq.data.binarized import count_tokens, training_counts
from tests.small_trainings import build


def test_counts_are_those_of_all_parts_of_the_split(lm_data, tmp_path):
    data = shutil.copytree(lm_data, tmp_path / "bin")
    _, task, *_ = build(data, "--criterion", "mle")
    counts = training_counts(task, "train")
    assert torch.equal(counts, count_tokens(data, task.dictionary))
    for suffix in ("bin", "idx"):
        shutil.copy(data / f"valid.{suffix}", data / f"train1.{suffix}")  # fairseq reads it as more of train
    assert torch.equal(training_counts(task, "train"), counts + count_tokens(data, task.dictionary, "valid"))


def test_counts_fold_what_is_not_predicted_into_the_unknown_word(lm_data):
    """fairseq's language models may predict the head of their dictionary only."""
    _, task, *_ = build(lm_data, "--criterion", "mle", "--output-dictionary-size", 30)
    whole = count_tokens(lm_data, task.dictionary)
    counts = training_counts(task, "train")
    assert len(counts) == 30 and counts.sum() == whole.sum()
    assert counts[task.dictionary.unk()] == whole[30:].sum() + whole[task.dictionary.unk()]
