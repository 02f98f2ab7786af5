"""Each objective through fairseq-train: two updates, a resume, and its checkpoint in fairseq's own tools."""

import re
import sys

import pytest
import torch
from fairseq_cli import train as fairseq_train

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from tests.conftest import ROOT, run_command
from tests.end_to_end.test_command_lines import COMMON, LM, MT

pytestmark = pytest.mark.slow  # command lines: processes of their own

OBJECTIVES = {
    "mle": ("mle",),
    "agps": ("agps", "--agps-rare-rank", "20", "--agps-mu1", "30", "--agps-mu2", "5", "--agps-variant", "algorithm1"),
    "cosreg": ("cosreg",),
    "freeze": ("freeze_rare", "--weight-decay", "0.1"),
    "freeze-bc": ("freeze_rare", "--freeze-parts", "bc", "--freeze-until", "3"),
    "unlikelihood": ("unlikelihood",),
    "face": ("face",),
    "centered": ("mle", "--center-output", "--z-loss", "1e-2", "--mu-loss", "0.1"),
    "adversarial": ("mle", "--adv-epsilon", "0.1"),
    "ul-agg": ("agg", "--agg-alpha", "0.5", "--agg-gates", "faded", "--ul-alpha", "1", "--cosreg-gamma", "1"),
}
SEQUENCE = (
    "unlikelihood_sequence", "--ul-prefix-length", "5", "--ul-completion-length", "8", "--ul-ngram", "2",
    "--ul-alpha", "0.5",
)  # fmt: skip


LSTM = (
    "--task language_modeling --arch lstm_lm --decoder-embed-dim 16 --decoder-out-embed-dim 16 --tokens-per-sample 16 "
    "--max-tokens 64 --share-decoder-input-output-embed"
).split()
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


def train(monkeypatch, data, save, base, criterion, updates, *more):
    """The real entry point, in this process: starting Python and torch anew would take most of the time."""
    arguments = [
        "fairseq-train", data, "--user-dir", ROOT / "agg_fairseq", *base, *COMMON, "--save-dir", save,
        "--max-update", updates, "--disable-validation", "--criterion", *criterion, *more,
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", [str(argument) for argument in arguments])
    fairseq_train.cli_main()
    return Checkpoint(save / "checkpoint_last.pt").state


def train_and_resume(monkeypatch, data, folder, base, name, criterion):
    """Two updates, and two more; returns the checkpoint after them."""
    for updates in (2, 4):
        state = train(monkeypatch, data, folder / name, base, criterion, updates)
        assert state["optimizer_history"][-1]["num_updates"] == updates
    return folder / name / "checkpoint_last.pt"


def test_language_models(lm_data, tmp_path, monkeypatch):
    """Resumed, they equal an uninterrupted run bit for bit; the stock fairseq-eval-lm loads them without --user-dir."""
    checkpoints = []
    for name, criterion in {**OBJECTIVES, "ul-sequence": SEQUENCE}.items():
        checkpoints.append(train_and_resume(monkeypatch, lm_data, tmp_path, LM, name, criterion))
        whole = train(monkeypatch, lm_data, tmp_path / f"{name}-whole", LM, criterion, 4)
        for key, tensor in Checkpoint(checkpoints[-1]).state["model"].items():
            assert torch.equal(tensor, whole["model"][key]), (name, key)
    stock = run_command("python", "-c", STOCK, lm_data, *checkpoints)
    found = [float(ppl) for ppl in re.findall(r"Perplexity: ([\d.]+)", stock.stdout + stock.stderr)]
    assert len(found) == len(checkpoints) and max(found) < 80
    models = [Checkpoint(path).state["model"]["decoder.embed_tokens.weight"] for path in checkpoints]
    assert not any(torch.equal(models[0], other) for other in models[1:]), "each objective trains another model"


def test_cosreg_on_an_lstm(lm_data, tmp_path, monkeypatch):
    """The model of its paper; fairseq saves its options in a form that torch >= 2.6 opens with the plug-in only."""
    checkpoint = train_and_resume(monkeypatch, lm_data, tmp_path, LSTM, "lstm", ("cosreg",))
    stock = run_command(
        "fairseq-eval-lm", lm_data, "--user-dir", "agg_fairseq", "--path", checkpoint, "--gen-subset", "test",
        "--tokens-per-sample", "16", "--max-tokens", "64", "--cpu",
    )  # fmt: skip
    assert float(re.search(r"Perplexity: ([\d.]+)", stock.stdout + stock.stderr)[1]) < 80


def test_translation_models(mt_data, tmp_path, monkeypatch):
    """With a joined dictionary; the plug-in lets fairseq-generate open what fairseq-train saves of these."""
    checkpoints = [
        train_and_resume(monkeypatch, mt_data, tmp_path, MT, name, (*criterion, "--label-smoothing", "0.1"))
        for name, criterion in OBJECTIVES.items()
    ]
    printed = run_command(
        "fairseq-generate", mt_data, "--user-dir", "agg_fairseq", "--path", ":".join(map(str, checkpoints)),
        "--gen-subset", "test", "--beam", "2", "--cpu", "--max-tokens", "64", "--max-len-b", "10",
    ).stdout  # fmt: skip
    assert "BLEU4 = " in printed


def test_frozen_rows_survive_a_resume(lm_data, tmp_path, monkeypatch):
    """With Adam, weight decay and tied embeddings: the rows of rare tokens are what they were before the first step."""
    criterion = ("freeze_rare", "--freeze-fraction", "0.4", "--weight-decay", "0.1")
    first = train(monkeypatch, lm_data, tmp_path / "run", LM, criterion, 1)["model"]["decoder.embed_tokens.weight"]
    kept = first.clone()
    last = train(monkeypatch, lm_data, tmp_path / "run", LM, criterion, 9)["model"]["decoder.embed_tokens.weight"]
    same = (kept == last).all(1)
    assert 20 <= same.sum() <= 26  # 40% of 62 tokens, and padding
    assert (tmp_path / "run" / "target-token-counts.npz").is_file()


@pytest.mark.parametrize("by", ["save-dir", "restore-file"])
def test_another_criterion_needs_a_new_optimizer(lm_data, tmp_path, monkeypatch, capsys, by):
    """One line with the remedy, status 2; and the remedy works."""
    train(monkeypatch, lm_data, tmp_path / "mle", LM, ("mle",), 1)
    save, more = tmp_path / "mle", ()
    if by == "restore-file":
        save, more = tmp_path / "other", ("--restore-file", tmp_path / "mle" / "checkpoint_last.pt")
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        train(monkeypatch, lm_data, save, LM, ("cosreg",), 2, *more)
    line = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("agg-fairseq: error"))
    assert stop.value.code == 2 and "MleCriterion, expected CosRegCriterion; add --reset-optimizer" in line
    train(monkeypatch, lm_data, save, LM, ("cosreg",), 2, *more, "--reset-optimizer")
