"""A trained model with the ordinary softmax becomes one with the factorized layer, and goes on training."""

import json
import shutil

import pytest
import torch

from agg_fairseq.cli.main import main
from tests.conftest import ROOT, run_command

SMALL = ("--max-epoch", "2", "--optimizer", "adam", "--lr", "0.01", "--max-tokens", "256", "--no-epoch-checkpoints")
LM_SIZE = (
    "--task", "language_modeling", "--tokens-per-sample", "16", "--decoder-layers", "1", "--decoder-embed-dim", "8",
    "--decoder-input-dim", "8", "--decoder-output-dim", "8", "--decoder-ffn-embed-dim", "8",
    "--decoder-attention-heads", "2",
)  # fmt: skip
MT_SIZE = (
    "-s", "en", "-t", "de", "--encoder-layers", "1", "--decoder-layers", "1", "--encoder-embed-dim", "8",
    "--decoder-embed-dim", "8", "--encoder-ffn-embed-dim", "8", "--decoder-ffn-embed-dim", "8",
    "--encoder-attention-heads", "2", "--decoder-attention-heads", "2", "--share-all-embeddings",
)  # fmt: skip
PLUGIN = ("--user-dir", str(ROOT / "agg_fairseq"))


@pytest.fixture(scope="module")
def lm_checkpoint(lm_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("softmax-lm")
    run_command("fairseq-train", lm_data, *LM_SIZE, *SMALL, "--arch", "transformer_lm", "--save-dir", folder)
    return folder / "checkpoint_best.pt"


@pytest.fixture(scope="module")
def mt_checkpoint(mt_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("softmax-mt")
    run_command(
        "fairseq-train", mt_data, *PLUGIN, *MT_SIZE, *SMALL, "--arch", "transformer", "--save-dir", folder
    )  # fmt: skip
    return folder / "checkpoint_best.pt"


def convert(checkpoint, data, output, *options):
    return main(["convert-to-f2", "--path", str(checkpoint), "--data", str(data), "--output", str(output), *options])


def perplexities(output):
    rows = [line.split("|") for line in output.splitlines() if line.startswith("|")][2:]
    return [float(row[3].replace(",", "")) for row in rows]


@pytest.mark.slow
def test_language_model(lm_checkpoint, lm_data, tmp_path, capsys):
    """It starts where the softmax stood, says so, and fairseq-train goes on from there."""
    output = tmp_path / "f2.pt"
    assert convert(lm_checkpoint, lm_data, output, "--positions", "400", "--json", str(tmp_path / "f2.json")) == 0
    softmax, mean, fitted = perplexities(capsys.readouterr().out)
    values = json.loads((tmp_path / "f2.json").read_text())["valid"]
    assert values["softmax"]["kl"] == 0 <= values["fitted"]["kl"] < values["mean"]["kl"]
    assert fitted == pytest.approx(softmax, rel=0.05)

    evaluated = []
    for path in (lm_checkpoint, output):
        json_file = tmp_path / "eval.json"
        assert (
            main(["eval-lm", str(lm_data), "--path", str(path), "--gen-subset", "valid", "--json", str(json_file)]) == 0
        )
        evaluated.append(json.loads(json_file.read_text())["checkpoints"][0]["perplexity"]["total"])
    assert evaluated[0] == pytest.approx(softmax, rel=2e-2)  # the last block of a line is cut otherwise
    assert evaluated[1] == pytest.approx(evaluated[0], rel=0.05)

    validated = run_command(
        "fairseq-validate", lm_data, *PLUGIN, "--task", "language_modeling", "--path", output, "--max-tokens", "256"
    )
    assert "class_nll" in validated.stdout + validated.stderr
    result = run_command(
        "fairseq-train", lm_data, *PLUGIN, *LM_SIZE, *SMALL, "--arch", "transformer_lm_f2", "--criterion",
        "f2_softmax", "--finetune-from-model", output, "--save-dir", tmp_path / "on", "--log-format", "simple",
    )  # fmt: skip
    assert "class_nll" in result.stdout + result.stderr


@pytest.mark.slow
def test_translation_model(mt_checkpoint, mt_data, tmp_path, capsys):
    output = tmp_path / "f2.pt"
    assert convert(mt_checkpoint, mt_data, output, "--f2-assignment", "equal-token", "--f2-classes", "3") == 0
    softmax, _, fitted = perplexities(capsys.readouterr().out)
    assert fitted == pytest.approx(softmax, rel=0.05)
    generated = run_command("fairseq-generate", mt_data, *PLUGIN, "-s", "en", "-t", "de", "--path", output)
    assert generated.stdout.count("H-") == generated.stdout.count("S-") > 0


def test_what_is_in_the_checkpoint(lm_checkpoint, lm_data, tmp_path):
    output = tmp_path / "f2.pt"
    assert convert(lm_checkpoint, lm_data, output, "--f2-assignment", "equal-token", "--f2-classes", "4") == 0
    before, after = (torch.load(path, weights_only=True) for path in (lm_checkpoint, output))
    added = set(after["model"]) - set(before["model"])
    layer = "decoder.output_projection"
    assert added == {f"{layer}.class_weight", f"{layer}.class_of_token"}
    assert all(torch.equal(after["model"][name], value) for name, value in before["model"].items())
    assert after["cfg"]["model"]["_name"] == "transformer_lm_f2" and after["last_optimizer_state"] is None
    assert before["cfg"]["model"]["_name"] == "transformer_lm"


def test_refusals(lm_checkpoint, lm_data, mt_data, tmp_path, capsys):
    """One line, status 2, and nothing written."""
    output = tmp_path / "f2.pt"
    without_valid = tmp_path / "no-valid"
    shutil.copytree(lm_data, without_valid, ignore=shutil.ignore_patterns("valid*"))
    assert convert(lm_checkpoint, lm_data, output) == 0
    cases = [
        ((output, lm_data), "found a model transformer_lm_f2; expected transformer_lm or transformer"),
        ((tmp_path / "none.pt", lm_data), "found no such file"),
        ((lm_checkpoint, tmp_path), "fairseq cannot build its model"),
        ((lm_checkpoint, lm_data, "--f2-classes", "3"), "no --f2-classes, since it finds their number"),
        ((lm_checkpoint, lm_data, "--f2-assignment", "equal-token"), "expected --f2-classes, the number of classes"),
        ((lm_checkpoint, lm_data, "--f2-assignment", "equal-token", "--f2-classes", "999"), "one per token at most"),
        ((lm_checkpoint, lm_data, "--positions", "0"), "expected at least 1"),
        ((lm_checkpoint, lm_data, "--max-tokens", "2"), "raise --max-tokens"),
        ((lm_checkpoint, lm_data, "--json", str(tmp_path / "new.pt")), "--json: found the file of --output"),
        ((lm_checkpoint, mt_data), "fairseq cannot build its model"),
        ((lm_checkpoint, without_valid), "found no valid.bin"),
    ]
    for (path, data, *options), text in cases:
        capsys.readouterr()
        assert convert(path, data, tmp_path / "new.pt", *options) == 2
        error = capsys.readouterr().err.strip()
        assert text in error and "\n" not in error
        assert not (tmp_path / "new.pt").exists()
