"""`agg-fairseq push-pull`, from the second moments that a checkpoint has."""

import pytest
import torch

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.evaluation import push_pull
from tests.commands import read_result, refused, run


def test_ratios_are_those_of_the_second_moments_in_the_checkpoint(lm_runs, lm_data, tmp_path, capsys):
    """Equal second moments are gradient descent; if they are small where a token is rare, its pulls are unchanged."""
    path = lm_runs / "mle" / "checkpoint_last.pt"
    run(capsys, "push-pull", path, "--data", lm_data, "--batches", 3, "--json", tmp_path / "p.json")
    [row] = read_result(tmp_path / "p.json").rows.values()
    counts = BinarizedVocabulary.load(lm_data).counts
    assert row["updates_per_occurrence"]["rare"] > row["updates_per_occurrence"]["frequent"] > 0
    assert all(0 < row["push_to_pull_measured"][group] < 100 for group in ("frequent", "medium", "rare"))
    checkpoint = Checkpoint(path)
    [second] = [s["exp_avg_sq"] for s in checkpoint.state["last_optimizer_state"]["state"].values()
                if s["exp_avg_sq"].shape[0] == len(counts)]  # fmt: skip
    second.fill_(1e12)  # against which no gradient counts
    flat = push_pull({"mle": checkpoint}, lm_data, batches=3)["mle"]["push_to_pull_measured"]
    assert list(flat.values()) == pytest.approx([1.0] * 3, rel=1e-3)


def test_a_memory_of_appearances_favors_pushes_less(lm_runs, lm_data):
    """The same second moments, of which the row of a token that appears forgets less."""
    ratios = {}
    for memory in ("updates", "appearances"):
        checkpoint = Checkpoint(lm_runs / "mle" / "checkpoint_last.pt")
        checkpoint.state["cfg"]["optimizer"]["embedding_memory"] = memory
        ratios[memory] = push_pull({"mle": checkpoint}, lm_data, batches=3)["mle"]["push_to_pull_measured"]["rare"]
    assert ratios["appearances"] < ratios["updates"]


def test_a_checkpoint_without_second_moments_is_refused(lm_runs, lm_data, tmp_path, capsys):
    state = Checkpoint(lm_runs / "mle" / "checkpoint_last.pt").state
    torch.save({**state, "last_optimizer_state": None}, tmp_path / "bare.pt")
    error = refused(capsys, "push-pull", tmp_path / "bare.pt", "--data", lm_data)
    assert "found no second moments; expected --optimizer adam" in error
