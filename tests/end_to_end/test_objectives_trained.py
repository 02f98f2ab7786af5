"""The objectives through fairseq-train, and their checkpoints in fairseq's own tools."""

import re

import pytest
import torch
from omegaconf import OmegaConf

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from tests.conftest import ROOT, SMALL_LM, call, called, run_command
from tests.small_trainings import EVERY_CRITERION, MT

pytestmark = pytest.mark.slow  # command lines

OBJECTIVES = {
    "agps": (*EVERY_CRITERION["agps"], "--agps-variant", "algorithm1"),
    "freeze": ("--criterion", "freeze_rare", "--weight-decay", 0.1),
    "face": ("--criterion", "face"),
    "sequence": EVERY_CRITERION["unlikelihood_sequence"],
    "terms": (
        "--criterion", "agg", "--agg-alpha", 0.5, "--agg-gates", "faded", "--ul-alpha", 1, "--cosreg-gamma", 1,
        "--adv-epsilon", 0.1, "--z-loss", 1e-2, "--mu-loss", 0.1, "--center-output",
    ),
}  # fmt: skip
LSTM = (
    "--task language_modeling --arch lstm_lm --decoder-embed-dim 16 --decoder-out-embed-dim 16 --tokens-per-sample 16 "
    "--max-tokens 64 --share-decoder-input-output-embed"
).split()
COMMON = "--optimizer adam --lr 0.01 --cpu --seed 3 --no-epoch-checkpoints --num-workers 0 --log-format json".split()
BLOCKS = ("--tokens-per-sample", 16, "--max-tokens", 64, "--cpu")
STOCK = """
import re, sys
from fairseq import options
from fairseq_cli import eval_lm
checkpoints, data = sys.argv[2:], sys.argv[1]
for checkpoint in checkpoints:
    sys.argv = ["fairseq-eval-lm", data, "--path", checkpoint, "--gen-subset", "test", "--tokens-per-sample", "16",
                "--max-tokens", "64", "--cpu"]
    eval_lm.cli_main()
assert "agg_fairseq" not in sys.modules
"""


def arguments(data, save, base, updates, *options):
    return (
        data, "--user-dir", ROOT / "agg_fairseq", *base, *COMMON, "--save-dir", save, "--max-update", updates,
        "--disable-validation", *options,
    )  # fmt: skip


def train(data, save, base, updates, *options):
    """The checkpoint of a training, begun or resumed in the folder."""
    called("train", *arguments(data, save, base, updates, *options))
    return save / "checkpoint_last.pt"


def test_language_models_in_stock_tools(lm_data, tmp_path):
    """The stock fairseq-eval-lm loads them without --user-dir; and each objective trains another model."""
    paths = [train(lm_data, tmp_path / name, SMALL_LM, 4, *options) for name, options in OBJECTIVES.items()]
    stock = run_command("python", "-c", STOCK, lm_data, *paths)
    found = [float(ppl) for ppl in re.findall(r"Perplexity: ([\d.]+)", stock.stdout + stock.stderr)]
    assert len(found) == len(paths) and max(found) < 80
    weights = [Checkpoint(path).state["model"]["decoder.embed_tokens.weight"] for path in paths]
    assert not any(torch.equal(weights[0], other) for other in weights[1:])


def test_an_lstm_and_translation_models(lm_data, mt_data, tmp_path):
    """The plug-in lets fairseq's tools open what torch >= 2.6 would not: options that fairseq saves as a Namespace."""
    lstm = train(lm_data, tmp_path / "lstm", LSTM, 2, "--criterion", "cosreg")
    plugin = ("--user-dir", ROOT / "agg_fairseq")
    printed = called("eval-lm", lm_data, *plugin, "--path", lstm, "--gen-subset", "test", *BLOCKS)
    assert float(re.search(r"Perplexity: ([\d.]+)", printed)[1]) < 80
    paths = [
        train(mt_data, tmp_path / name, MT, 2, *OBJECTIVES[name], "--label-smoothing", 0.1)
        for name in ("agps", "terms")
    ]
    ensemble = ("--path", ":".join(map(str, paths)), "--gen-subset", "test", "--beam", 2, "--max-len-b", 10)
    assert "BLEU4 = " in called("generate", mt_data, *plugin, *ensemble, "--max-tokens", 64, "--cpu")


def test_frozen_rows_survive_a_resume(lm_data, tmp_path):
    """With Adam, weight decay and tied embeddings: the rows of rare tokens are what they were before the first step."""
    options = ("--criterion", "freeze_rare", "--freeze-fraction", 0.4, "--weight-decay", 0.1)
    weights = []
    for updates in (1, 9):
        path = train(lm_data, tmp_path / "run", SMALL_LM, updates, *options)
        weights.append(Checkpoint(path).state["model"]["decoder.embed_tokens.weight"].clone())
    same = (weights[0] == weights[1]).all(1)
    assert 20 <= same.sum() <= 26  # 40% of 62 tokens, and padding
    assert (tmp_path / "run" / "target-token-counts.npz").is_file()


def test_another_criterion_needs_a_new_optimizer(lm_data, tmp_path):
    """One line with the remedy, status 2, whether it is in the folder or named; and the remedy works."""
    path = train(lm_data, tmp_path / "mle", SMALL_LM, 1, "--criterion", "mle")
    for save, more in ((tmp_path / "mle", ()), (tmp_path / "other", ("--restore-file", path))):
        given = arguments(lm_data, save, SMALL_LM, 2, "--criterion", "cosreg", *more)
        status, _, _, error = call("train", *given)
        assert status == 2 and "MleCriterion, expected CosRegCriterion; add --reset-optimizer" in error
    called("train", *given, "--reset-optimizer")


def test_a_checkpoint_with_options_of_version_0_2_0(lm_data, tmp_path):
    """They are in its configuration, at 0: it is validated, measured and resumed, also by the old command line."""
    path = train(lm_data, tmp_path / "run", SMALL_LM, 2, "--criterion", "agg")
    state = Checkpoint(path).state
    state["cfg"] = OmegaConf.to_container(OmegaConf.create(state["cfg"]))
    assert state["cfg"]["criterion"]["_name"] == "agg"
    state["cfg"]["criterion"] |= {"dispersion_gamma": 0.0, "isoscore_gamma": 0.0}
    torch.save(state, tmp_path / "new.pt")
    (tmp_path / "new.pt").replace(path)
    plugin = ("--user-dir", ROOT / "agg_fairseq")
    validated = called("validate", lm_data, *plugin, "--task", "language_modeling", "--path", path, *BLOCKS)
    assert re.search(r"ppl \d", validated)
    assert "Perplexity: " in called("eval-lm", lm_data, "--path", path, "--gen-subset", "test", *BLOCKS)
    train(lm_data, tmp_path / "run", SMALL_LM, 3, "--criterion", "agg", "--dispersion-gamma", 0)
    assert Checkpoint(path).state["optimizer_history"][-1]["num_updates"] == 3
