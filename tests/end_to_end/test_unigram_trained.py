"""Models with a log-unigram bias through the real command lines: train, resume, evaluate, generate."""

import json
import math
import re
import shutil

import pytest
import torch

import agg_fairseq.criterions
import agg_fairseq.models  # noqa: F401 — registers, also where the package was imported before fairseq
from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.cli.main import main as agg_main
from tests.conftest import ROOT, called, run_command
from tests.end_to_end.test_command_lines import COMMON, LM, MT

pytestmark = pytest.mark.slow  # command lines: processes of their own

UNIGRAM_LM = [*LM, "--arch", "transformer_lm_unigram", "--dropout", "0.1"]
UNIGRAM_MT = [*MT, "--arch", "transformer_unigram_tiny", "--dropout", "0", "--share-all-embeddings"]
AGG = ("--criterion", "agg", "--agg-rare-fraction", "0.3")
LAYER = "decoder.output_projection"


def train(data, save, *arguments, base=UNIGRAM_LM):
    return called(
        "train", data, "--user-dir", ROOT / "agg_fairseq", *base, *COMMON, "--save-dir", save, *AGG, *arguments
    )


def without_training_data(data, folder):
    """A copy of a folder of fairseq-preprocess as someone has it who only evaluates."""
    return shutil.copytree(data, folder, ignore=shutil.ignore_patterns("train*"))


@pytest.mark.parametrize("kind", ["learned", "fixed"])
def test_a_resumed_training_is_that_without_interruption(lm_data, tmp_path, kind):
    options = ("--unigram-bias", kind, "--weight-decay", 0.1, "--disable-validation")
    train(lm_data, tmp_path / "whole", *options, "--max-update", 8)
    for updates in (3, 8):
        train(lm_data, tmp_path / "resumed", *options, "--max-update", updates)
    whole, resumed = (Checkpoint(tmp_path / name / "checkpoint_last.pt").parameters for name in ("whole", "resumed"))
    assert (f"{LAYER}.bias_shift" in whole) == (kind == "learned") and f"{LAYER}.counts" in whole
    assert list(whole) == list(resumed)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_evaluation_needs_no_training_data(lm_data, tmp_path, capsys):
    """The perplexity of validation in the log, of fairseq-eval-lm and of our eval-lm; texts; the names of W."""
    blocks = ("--sample-break-mode", "eos", "--required-batch-size-multiple", 1)
    log = train(lm_data, tmp_path / "run", *blocks, "--max-update", 20, "--share-decoder-input-output-embed")
    expected = float(re.findall(r'"valid_ppl": "([\d.]+)"', log)[-1])
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    printed = called(
        "eval_lm", without_training_data(lm_data, tmp_path / "data"), "--user-dir", ROOT / "agg_fairseq", "--path",
        checkpoint, "--cpu", "--gen-subset", "valid", "--tokens-per-sample", "16", "--max-tokens", "64",
        "--num-workers", "0", *blocks,
    )  # fmt: skip
    assert float(re.search(r"Perplexity: ([\d.]+)", printed)[1]) == pytest.approx(expected, abs=0.011)
    assert agg_main(
        ["eval-lm", str(lm_data), "--path", str(checkpoint), "--gen-subset", "valid", "--tokens-per-sample", "16"]
        + ["--json", str(tmp_path / "eval.json"), "--device", "cpu", *blocks[:2]]
    ) == 0  # fmt: skip
    found = json.loads((tmp_path / "eval.json").read_text())["checkpoints"][0]["perplexity"]["total"]
    assert found == pytest.approx(expected, abs=0.011)
    assert "embed_tokens" not in capsys.readouterr().out
    assert agg_main(["isotropy", str(checkpoint), "--data", str(lm_data)]) == 0
    assert f"{LAYER}.weight(tied)+log-unigram" in capsys.readouterr().out
    texts = tmp_path / "texts.jsonl"
    run_command(
        "agg-fairseq", "generate-lm", tmp_path / "data", "--path", checkpoint, "--output", texts, "--prefix-length", 4,
        "--length", 6, "--device", "cpu",
    )  # fmt: skip
    assert texts.read_text().startswith("{")


def test_an_average_and_an_ensemble_translate(mt_data, tmp_path):
    """Two seeds in fairseq-generate without training data; the mean of two checkpoints of one run."""
    for seed in (1, 2):
        train(mt_data, tmp_path / str(seed), "--max-update", 12, "--save-interval-updates", 6, "--seed", seed,
              "--disable-validation", base=UNIGRAM_MT)  # fmt: skip
    paths = [tmp_path / str(seed) / "checkpoint_last.pt" for seed in (1, 2)]
    counts = [Checkpoint(path).parameters[f"{LAYER}.counts"] for path in paths]
    assert torch.equal(*counts) and counts[0].any()
    data = without_training_data(mt_data, tmp_path / "data")
    scores = []
    for path in (paths[0], f"{paths[0]}:{paths[1]}"):
        printed = called(
            "generate", data, "--user-dir", ROOT / "agg_fairseq", "--path", path, "--cpu", "--max-tokens", "64",
            "--gen-subset", "test", "--beam", 3, "--max-len-b", 8, "--max-len-a", 0, "--num-workers", 0,
            "--required-batch-size-multiple", 1,  # fairseq leaves sentences out otherwise
        )  # fmt: skip
        found = [float(score) for score in re.findall(r"^H-\d+\t(\S+)\t", printed, re.M)]
        assert len(found) == 12 and all(map(math.isfinite, found))
        scores.append(found)
    assert scores[0] != scores[1]
    inner = [tmp_path / "1" / "checkpoint_1_6.pt", paths[0]]
    run_command("agg-fairseq", "average-checkpoints", *inner, "--output", tmp_path / "mean.pt")
    mean, *of_each = (Checkpoint(path).parameters for path in (tmp_path / "mean.pt", *inner))
    expected = sum(one[f"{LAYER}.bias_shift"].double() for one in of_each) / len(of_each)
    torch.testing.assert_close(mean[f"{LAYER}.bias_shift"].double(), expected, rtol=0, atol=1e-7)
    assert torch.equal(mean[f"{LAYER}.counts"], of_each[0][f"{LAYER}.counts"])


def test_a_config_of_fairseq_hydra_train(lm_data, tmp_path):
    (tmp_path / "unigram.yaml").write_text(f"""# @package _group_
defaults: [_self_]
common: {{user_dir: "{ROOT / "agg_fairseq"}", cpu: true}}
task: {{_name: language_modeling, data: {lm_data}, tokens_per_sample: 16}}
model: {{_name: transformer_lm_unigram, decoder_layers: 1, decoder_embed_dim: 16, decoder_input_dim: 16,
  decoder_output_dim: 16, decoder_ffn_embed_dim: 16, decoder_attention_heads: 2, unigram_bias: fixed}}
criterion: {{_name: agg, agg_rare_fraction: 0.3}}
dataset: {{max_tokens: 64, num_workers: 0}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
optimization: {{max_update: 3, lr: [0.01]}}
checkpoint: {{save_dir: {tmp_path / "run"}}}
""")
    run_command("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "unigram", cwd=tmp_path)
    assert f"{LAYER}.bias_shift" not in Checkpoint(tmp_path / "run" / "checkpoint_last.pt").parameters
