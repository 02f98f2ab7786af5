"""`agg-fairseq calibrate`: a checkpoint with one offset per group, which every tool loads."""

import pytest

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import perplexity
from agg_fairseq.evaluation.calibration import calibrate
from tests.conftest import ROOT, called
from tests.glue.test_perplexity import KINDS, random_checkpoint
from tests.small_trainings import LM

UNIGRAM = [*LM, "--arch", "transformer_lm_unigram", "--criterion", "mle"]
MODELS = {
    "no bias": (*LM, "--criterion", "mle"),
    "tied": (*LM, "--criterion", "mle", "--share-decoder-input-output-embed"),
    "fixed": (*UNIGRAM, "--unigram-bias", "fixed"),
    "learned": (*UNIGRAM, "--unigram-bias", "learned"),
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_checkpoint_is_the_calibrated_model(kind, lm_data, tmp_path, capsys):
    """Its measures on any split are those that eval-lm --calibrate predicts; within the groups nothing changes."""
    before = random_checkpoint(tmp_path / "before.pt", lm_data, MODELS[kind])
    arguments = ["calibrate", tmp_path / "before.pt", "--data", lm_data, "--output", tmp_path / "after.pt"]
    assert main([*map(str, arguments), "--split", "test"]) == 0
    assert "| as it was " in capsys.readouterr().out
    after = Checkpoint(tmp_path / "after.pt")
    expected, found = (
        perplexity({"m": checkpoint}, lm_data, split="valid", calibrate="test", device="cpu")
        for checkpoint in (before, after)
    )
    offsets = found.details["checkpoints"][0]["offsets"]
    assert list(offsets.values()) == pytest.approx([0, 0, 0], abs=1e-4)  # those that are left
    one, other = expected["m"], found["m"]
    assert other["PPL total"] == pytest.approx(one["calibrated PPL total"], rel=1e-4)
    assert other["E/O rare"] == pytest.approx(one["calibrated E/O rare"], rel=1e-4)
    for group in ("frequent", "medium", "rare"):
        assert other[f"PPL within {group}"] == pytest.approx(one[f"PPL within {group}"], rel=1e-4)


def test_stock_tools_load_it(lm_runs, lm_data, tmp_path):
    checkpoint = Checkpoint(lm_runs / "agg")
    result = calibrate(checkpoint, lm_data, tmp_path / "after.pt", split="test", device="cpu")
    assert result["calibrated"]["PPL total"] < result["as it was"]["PPL total"]
    printed = called(
        "eval_lm", lm_data, "--user-dir", ROOT / "agg_fairseq", "--path", tmp_path / "after.pt", "--cpu",
        "--gen-subset", "test", "--tokens-per-sample", "16", "--max-tokens", "64", "--num-workers", "0",
    )  # fmt: skip
    loss = float(printed.split("Loss (base 2): ")[1].split(",")[0])
    assert 2**loss == pytest.approx(result["calibrated"]["PPL total"], rel=1e-3)


def test_refused(lm_data, mt_data, tmp_path):
    f2 = random_checkpoint(tmp_path / "f2.pt", lm_data, KINDS["f2"])
    with pytest.raises(UserError, match="found a model transformer_lm_f2; expected a transformer_lm or transformer"):
        calibrate(f2, lm_data, tmp_path / "out.pt")
    pairs = random_checkpoint(tmp_path / "mt.pt", mt_data, KINDS["translation"])
    with pytest.raises(UserError, match="--split valid: found no rare targets"):  # its rare words are of the source
        calibrate(pairs, mt_data, tmp_path / "out.pt")
    with pytest.raises(UserError, match="--output: found the file of --path"):
        calibrate(f2, lm_data, f2.path)
    assert not (tmp_path / "out.pt").exists()
