"""The counts of the target tokens of a training split, kept beside the run."""

import shutil

import torch

from agg_fairseq.data.binarized import count_tokens
from agg_fairseq.fairseq_glue.training_counts import FILE, training_counts
from tests.small_trainings import build


def test_counts_are_kept_beside_the_run(lm_data, tmp_path, caplog):
    data = tmp_path / "bin"
    shutil.copytree(lm_data, data)
    _, task, *_ = build(data, "--criterion", "mle")
    caplog.set_level("INFO")

    def counted():
        before = caplog.text.count("counting the ")
        counts = training_counts(task, "train", tmp_path / "run")
        return counts, caplog.text.count("counting the ") - before

    counts, times = counted()
    assert times == 1 and torch.equal(counts, count_tokens(data, task.dictionary))
    again, times = counted()
    assert times == 0 and torch.equal(counts, again)
    whole = (tmp_path / "run" / FILE).read_bytes()
    for damaged in (b"garbage", whole[: len(whole) // 2], b""):
        (tmp_path / "run" / FILE).write_bytes(damaged)
        again, times = counted()
        assert times == 1 and torch.equal(counts, again) and "unreadable" in caplog.text
    for suffix in ("bin", "idx"):
        shutil.copy(data / f"valid.{suffix}", data / f"train1.{suffix}")  # fairseq reads it as more of train
    more, times = counted()
    assert times == 1 and torch.equal(more, counts + count_tokens(data, task.dictionary, "valid"))


def test_counts_fold_what_is_not_predicted_into_the_unknown_word(lm_data):
    """fairseq's language models may predict the head of their dictionary only."""
    _, task, *_ = build(lm_data, "--criterion", "mle", "--output-dictionary-size", 30)
    whole = count_tokens(lm_data, task.dictionary)
    counts = training_counts(task, "train", None)
    assert len(counts) == 30 and counts.sum() == whole.sum()
    assert counts[task.dictionary.unk()] == whole[30:].sum() + whole[task.dictionary.unk()]
