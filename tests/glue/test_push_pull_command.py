"""The ratio of pushes to pulls, from the second moments that a checkpoint has."""

import pytest
import torch

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import push_pull
from agg_fairseq.optim import appearance_rates


def test_ratios_are_those_of_the_second_moments_in_the_checkpoint(lm_runs, lm_data):
    """Equal second moments are gradient descent; if they are small where a token is rare, its pulls are unchanged."""
    path = lm_runs / "mle" / "checkpoint_last.pt"
    row = push_pull({"mle": Checkpoint(path)}, lm_data, batches=3)["mle"]
    vocabulary = BinarizedVocabulary.load(lm_data)
    counts, rare = vocabulary.counts, vocabulary.groups("types").members("rare")
    rare_mean = counts[rare][counts[rare] > 0].double().mean().item()
    assert row["updates_per_occurrence"]["rare"] > row["updates_per_occurrence"]["frequent"] > 0
    assert all(0 < row["push_to_pull_measured"][group] < 100 for group in ("frequent", "medium", "rare"))
    octaves = [point["updates_per_occurrence"] for point in row["octaves"]]
    assert octaves == pytest.approx(
        [  # of at least 2^i and fewer than 2^(i+1) occurrences
            row["updates_per_occurrence"]["rare"]
            * rare_mean
            / counts[counts.log2().floor() == i].double().mean().item()
            for i in counts[counts > 0].log2().floor().unique().tolist()
        ]
    )
    checkpoint = Checkpoint(path)
    [second] = [s["exp_avg_sq"] for s in checkpoint.state["last_optimizer_state"]["state"].values()
                if s["exp_avg_sq"].shape[0] == len(counts)]  # fmt: skip
    second.fill_(1e12)  # against which no gradient counts
    flat = push_pull({"mle": checkpoint}, lm_data, batches=3)["mle"]["push_to_pull_measured"]
    assert list(flat.values()) == pytest.approx([1.0] * 3, rel=1e-3)


def test_a_memory_of_appearances(lm_runs, lm_data):
    """The same second moments, of which rows forget less: in the formula too; v is corrected row by row."""
    vocabulary, found = BinarizedVocabulary.load(lm_data), {}
    rates = appearance_rates(vocabulary.counts, updates=15)
    zeros = torch.full((len(rates), 1), 0.5).double()
    zeros[rates > rates.mean()] = 1 - 1e-4
    frequent = vocabulary.groups("types").members("frequent")
    for kind, own, share in (
        ("updates", {}, {}),
        ("appearances", {"rates": rates}, {}),
        ("corrected", {"rates": rates}, {"share_of_zeros": zeros}),
    ):
        checkpoint = Checkpoint(lm_runs / "mle" / "checkpoint_last.pt")
        saved = checkpoint.state["last_optimizer_state"]
        saved["param_groups"][-1] |= own
        for state in saved["state"].values():
            state.update(share if state["exp_avg_sq"].shape[0] == len(rates) else {})
        row = push_pull({"mle": checkpoint}, lm_data, batches=3)["mle"]
        x = row["updates_per_occurrence"]["frequent"] * 0.001 / 2
        x *= rates[frequent][vocabulary.counts[frequent] > 0].mean().item() if own else 1
        assert 1 - 1 / row["push_to_pull"]["frequent"] == pytest.approx(x)
        found[kind] = row["push_to_pull_measured"]
    assert found["appearances"]["rare"] < found["updates"]["rare"]
    assert found["corrected"]["rare"] == pytest.approx(found["appearances"]["rare"], rel=1e-2)  # one factor for all
    assert found["corrected"]["frequent"] != pytest.approx(found["appearances"]["frequent"], rel=1e-2)


@pytest.mark.parametrize(
    ("section", "option", "value", "message"),
    [
        ("optimization", "update_freq", [2], "found a training with --update-freq 2; expected 1; give"),
        ("criterion", "_name", "agg", "--criterion agg; expected mle or cross_entropy"),
        ("criterion", "label_smoothing", 0.1, "--label-smoothing 0.1; expected plain likelihood"),
        ("task", "_name", "translation", "--task translation; expected a language model"),
        ("model", "adaptive_softmax_cutoff", "9", "--adaptive-softmax-cutoff 9; expected one softmax"),
        ("common", "memory_efficient_fp16", True, "--memory-efficient-fp16; expected float32"),
        ("distributed_training", "distributed_world_size", 2, "--distributed-world-size 2; expected one worker"),
        ("optimizer", "_name", "coupled_adam", "--optimizer coupled_adam; expected adam or embedding_adam"),
    ],
)
def test_trainings_that_form_other_updates_are_refused(lm_runs, lm_data, section, option, value, message):
    checkpoint = Checkpoint(lm_runs / "mle" / "checkpoint_last.pt")
    checkpoint.state["cfg"][section][option] = value
    with pytest.raises(UserError, match=message):
        push_pull({"mle": checkpoint}, lm_data, batches=1)


def test_batches_and_dropout_are_as_in_training(lm_runs, lm_data):
    """Of two sentences each; and a model has the same numbers alone and as the second."""

    def checkpoint():
        checkpoint = Checkpoint(lm_runs / "mle" / "checkpoint_last.pt")
        checkpoint.state["cfg"]["dataset"] |= {"batch_size": 2, "required_batch_size_multiple": 1}
        checkpoint.state["cfg"]["model"] |= {"dropout": 0.5}
        return checkpoint

    [alone] = push_pull({"one": checkpoint()}, lm_data, batches=2).rows.values()
    second = push_pull({"one": checkpoint(), "two": checkpoint()}, lm_data, batches=2)["two"]
    assert second == alone
    counts = BinarizedVocabulary.load(lm_data).counts.double()
    rare = BinarizedVocabulary.load(lm_data).groups("types").members("rare")
    share = counts[rare][counts[rare] > 0].mean() / counts.sum()
    assert alone["updates_per_occurrence"]["rare"] > 1 / share / 33  # 16 tokens of each, or less; not 4 x 16


def test_what_cannot_be_measured_is_told_in_one_line(lm_runs, lm_data, tmp_path):
    path = lm_runs / "mle" / "checkpoint_last.pt"
    for number in (0, -1):
        with pytest.raises(UserError, match="--batches: expected at least 1"):
            push_pull({"mle": Checkpoint(path)}, lm_data, batches=number)
    state = Checkpoint(path).state
    torch.save({**state, "last_optimizer_state": None}, tmp_path / "bare.pt")
    with pytest.raises(UserError, match="found no state of the optimizer; expected a checkpoint that"):
        push_pull({"mle": Checkpoint(tmp_path / "bare.pt")}, lm_data, batches=1)
    moments = state["last_optimizer_state"]["state"]
    for number in moments:
        moments[number] = {"exp_avg_sq": torch.zeros(16)}
    torch.save(state, tmp_path / "coupled.pt")
    with pytest.raises(UserError, match=r"found second moments of shape \(16,\) of the output embedding; expected"):
        push_pull({"mle": Checkpoint(tmp_path / "coupled.pt")}, lm_data, batches=1)
