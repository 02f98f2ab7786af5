"""A trained model with the ordinary softmax becomes one with the factorized layer, and goes on training."""

import pytest
import torch

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.evaluation import BinarizedText, perplexity
from tests.commands import read_result, refused, run, save_model, table
from tests.conftest import called
from tests.small_trainings import COMMON, F2_LM, MT, TIED


@pytest.fixture(scope="module")
def trained(lm_data, tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("softmax") / "lm.pt", lm_data, TIED, updates=20)


def convert(capsys, checkpoint, data, output, *options):
    """The perplexities that are printed: of the softmax, of mean class embeddings, and of fitted ones."""
    printed = run(capsys, "convert-to-f2", checkpoint, "--data", data, "--output", output, *options)
    return [float(row[2]) for row in table(printed)[1]]


@pytest.mark.slow
def test_language_model(trained, lm_data, tmp_path, capsys):
    """It starts where the softmax stood, says so, and fairseq-train goes on from there."""
    output, found = tmp_path / "f2.pt", tmp_path / "f2.json"
    softmax, _, fitted = convert(capsys, trained, lm_data, output, "--json", found)
    result = read_result(found)
    assert result["none: the ordinary softmax"]["kl"] == 0 <= result["fitted"]["kl"] < result["mean"]["kl"]
    assert fitted == pytest.approx(softmax, rel=0.05)
    checkpoints = {"before": Checkpoint(trained), "after": Checkpoint(output)}
    evaluated = perplexity(checkpoints, BinarizedText(lm_data, "valid"), device="cpu")
    assert evaluated["before"]["perplexity"]["total"] == pytest.approx(softmax, rel=1e-2)
    assert evaluated["after"]["perplexity"]["total"] == pytest.approx(softmax, rel=0.05)
    arguments = (*F2_LM, *COMMON, TIED, "--criterion", "f2_softmax", "--max-update", 2)
    assert "class_nll" in called("train", lm_data, *arguments, "--finetune-from-model", output)


@pytest.mark.slow
def test_translation_model(mt_data, tmp_path, capsys):
    output, languages = tmp_path / "f2.pt", ("-s", "en", "-t", "de")
    before = save_model(tmp_path / "mt.pt", mt_data, "--share-all-embeddings", *languages, base=MT, updates=10)
    options = ("--f2-assignment", "equal-token", "--f2-classes", 3)
    softmax, _, fitted = convert(capsys, before, mt_data, output, *options)
    assert fitted == pytest.approx(softmax, rel=0.05)
    generated = called("generate", mt_data, *languages, "--path", output, "--max-len-b", 8, "--cpu")
    assert generated.count("H-") == generated.count("S-") > 0


def test_what_is_in_the_checkpoint(trained, lm_data, tmp_path, capsys):
    options = ("--f2-assignment", "equal-token", "--f2-classes", 4)
    convert(capsys, trained, lm_data, tmp_path / "f2.pt", *options)
    before, after = (torch.load(path, weights_only=True) for path in (trained, tmp_path / "f2.pt"))
    layer = "decoder.output_projection"
    assert set(after["model"]) - set(before["model"]) == {f"{layer}.class_weight", f"{layer}.class_of_token"}
    assert all(torch.equal(after["model"][name], value) for name, value in before["model"].items())
    assert after["cfg"]["model"]["_name"] == "transformer_lm_f2" and after["last_optimizer_state"] is None
    assert before["cfg"]["model"]["_name"] == "transformer_lm"


def test_convert_to_f2_refuses(trained, lm_data, tmp_path, capsys):
    output, new = tmp_path / "f2.pt", tmp_path / "new.pt"
    convert(capsys, trained, lm_data, output)
    for (path, data, *options), text in (
        ((output, lm_data), "found a model transformer_lm_f2; expected transformer_lm or transformer"),
        ((trained, tmp_path), "fairseq cannot build its model"),
        ((trained, lm_data, "--f2-classes", 3), "no --f2-classes, since it finds their number"),
        ((trained, lm_data, "--json", new), "--json: found the file of --output"),
    ):
        arguments = (path, "--data", data, "--output", new, *options)
        assert text in refused(capsys, "convert-to-f2", *arguments)
        assert not new.exists()
