"""Everything through the real command lines: train, resume, evaluate with the stock tools, generate."""

import json
import os
import re

import pytest
import torch

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from tests.conftest import ROOT, run_command, train_by_two_workers

LM = (
    "--task language_modeling --arch transformer_lm --decoder-layers 1 --decoder-embed-dim 16 --decoder-input-dim 16 "
    "--decoder-output-dim 16 --decoder-ffn-embed-dim 16 --decoder-attention-heads 2 --tokens-per-sample 16 "
    "--max-tokens 64 --share-decoder-input-output-embed"
).split()
MT = "--task translation --arch transformer_tiny --max-tokens 64".split()
COMMON = (
    "--optimizer adam --lr 0.01 --cpu --seed 3 --no-epoch-checkpoints --num-workers 0 "
    "--log-format json --log-interval 1"
).split()
AGG = ("--criterion", "agg", "--agg-rare-fraction", "0.3")


def train(data, save, *arguments, base=LM, user_dir="agg_fairseq", **kwargs):
    return run_command(
        "fairseq-train", data, "--user-dir", user_dir, *base, *COMMON, "--save-dir", save,
        "--log-file", f"{save}.log", *arguments, **kwargs,
    )  # fmt: skip


def state(save):
    return Checkpoint(save / "checkpoint_last.pt").state


@pytest.fixture(scope="module")
def agg_run(lm_data, tmp_path_factory):
    """A language model of 12 updates with agg."""
    save = tmp_path_factory.mktemp("runs") / "agg"
    train(lm_data, save, *AGG, "--max-update", 12)
    return save


@pytest.mark.grid(1)
@pytest.mark.parametrize("options", [(), ("--sample-break-mode", "eos"), ("--context-window", "8")])
def test_checkpoint_works_in_stock_eval_lm_and_ours_agrees(lm_data, agg_run, tmp_path, options):
    """Without --user-dir; total perplexity is the same to the digits that fairseq-eval-lm prints."""
    checkpoint = agg_run / "checkpoint_best.pt"
    stock = run_command(
        "fairseq-eval-lm", lm_data, "--path", checkpoint, "--gen-subset", "test", "--tokens-per-sample", "16",
        "--max-tokens", "64", "--cpu", *options,
    )  # fmt: skip
    expected = float(re.search(r"Perplexity: ([\d.]+)", stock.stdout + stock.stderr)[1])
    output = tmp_path / "eval.json"
    run_command(
        "agg-fairseq", "eval-lm", lm_data, "--path", checkpoint, "--tokens-per-sample", "16", "--max-tokens",
        "64", "--json", output, *options,
    )  # fmt: skip
    found = json.loads(output.read_text())["checkpoints"][0]["perplexity"]["total"]
    assert found == pytest.approx(expected, abs=0.006)


@pytest.mark.slow
def test_stock_generate_continues_text(lm_data, agg_run):
    printed = run_command(
        "fairseq-generate", lm_data, "--task", "language_modeling", "--path", agg_run / "checkpoint_best.pt",
        "--gen-subset", "test", "--sample-break-mode", "eos", "--max-tokens", "64", "--beam", "1", "--cpu",
        "--prefix-size", "2", "--max-len-b", "8",
    ).stdout  # fmt: skip
    assert len(re.findall(r"^H-\d+", printed, re.M)) == len(re.findall(r"^S-\d+", printed, re.M)) > 10


@pytest.mark.slow
def test_translation_trains_resumes_and_generates(mt_data, tmp_path):
    """With --user-dir, since under torch >= 2.6 fairseq alone cannot open what fairseq-train saves of such models."""
    save = tmp_path / "mt"
    for updates in (3, 6):
        train(mt_data, save, *AGG, "--label-smoothing", "0.1", "--max-update", updates, base=MT)
    assert state(save)["optimizer_history"][-1]["num_updates"] == 6
    printed = generate(mt_data, save, "--user-dir", "agg_fairseq")
    assert "BLEU4 = " in printed


@pytest.mark.slow
def test_stock_generate_translates_what_hydra_train_saved(mt_data, tmp_path):
    """Without --user-dir."""
    save = tmp_path / "mt"
    (tmp_path / "mt.yaml").write_text(f"""# @package _group_
common: {{user_dir: {ROOT / "agg_fairseq"}, cpu: true}}
task: {{_name: translation, data: {mt_data}}}
model: {{_name: transformer_tiny}}
criterion: {{_name: agg}}
dataset: {{max_tokens: 64, num_workers: 0}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
optimization: {{max_update: 2, lr: [0.01]}}
checkpoint: {{save_dir: {save}}}
""")
    run_command("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "mt", cwd=tmp_path)
    assert "BLEU4 = " in generate(mt_data, save)


def generate(data, save, *arguments):
    return run_command(
        "fairseq-generate", data, "--path", save / "checkpoint_best.pt", "--gen-subset", "test", "--beam", "2",
        "--cpu", "--max-tokens", "64", *arguments,
    ).stdout  # fmt: skip


@pytest.mark.slow
def test_two_workers_count_like_one_with_the_joined_batch(lm_data, tmp_path):
    """Batches are dealt round-robin, so that two micro-batches of one worker are those of two workers."""
    options = (*AGG, "--agg-window", "4", "--max-update", "6", "--dropout", "0")
    train(lm_data, tmp_path / "one", *options, "--update-freq", "2")
    train_by_two_workers(lm_data, tmp_path / "two", *LM, *COMMON, *options)
    one, two = state(tmp_path / "one"), state(tmp_path / "two")
    assert two["optimizer_history"][-1]["num_updates"] == 6
    ours, theirs = (s["extra_state"]["LanguageModelingTask"]["agg_fairseq"]["counter"] for s in (two, one))
    for name in ("tokens", "counts", "sizes", "current"):
        assert torch.equal(ours[name], theirs[name]), name
    for name, tensor in one["model"].items():
        torch.testing.assert_close(two["model"][name], tensor, rtol=1e-3, atol=1e-4)


def test_option_errors_of_fairseq_train(lm_data, tmp_path):
    for arguments, words in (
        (("--criterion", "agg", "--agg-alpha", "2"), "alpha between 0 and 1"),
        (("--criterion", "agg", "--agg-gates", "g3"), "g3"),
    ):
        result = train(lm_data, tmp_path / "x", *arguments, check=False)
        assert result.returncode == 2 and words in result.stderr and "Traceback" not in result.stderr


@pytest.mark.grid(1)
@pytest.mark.parametrize("form", ["relative", "trailing slash", "symlink", "installed"])
def test_user_dir_in_every_form(form, lm_data, tmp_path):
    """From another folder than the checkout; a link has another name than the package."""
    link = tmp_path / "plugin"
    link.symlink_to(ROOT / "agg_fairseq")
    user_dir = {
        "relative": os.path.relpath(ROOT / "agg_fairseq", tmp_path),
        "trailing slash": f"{ROOT / 'agg_fairseq'}/",
        "symlink": link,
        "installed": run_command("agg-fairseq", "user-dir").stdout.strip(),
    }[form]
    train(lm_data, tmp_path / "run", *AGG, "--max-update", 1, "--no-save", user_dir=user_dir, cwd=tmp_path)


def test_statistics_reach_the_log_and_tensorboard(lm_data, tmp_path):
    pytest.importorskip("tensorboardX")
    save = tmp_path / "run"
    train(
        lm_data, save, *AGG, "--max-update", 3, "--embedding-stats-interval", "1", "--no-save", "--tensorboard-logdir",
        tmp_path / "board",
    )  # fmt: skip
    lines = [json.loads(line) for line in open(f"{save}.log") if line.startswith('{"')]
    inner = [line for line in lines if "update" in line]
    assert all(0 < float(line["isotropy"]) <= 1 and "mean_cosine" in line for line in inner) and len(inner) == 3
    assert [line["rare_tokens"] for line in inner if "rare_tokens" in line] == ["18", "18"]
    assert any("valid_isotropy" in line for line in lines)
    written = b"".join(path.read_bytes() for path in (tmp_path / "board").rglob("events*"))
    assert b"isotropy" in written and b"rare_tokens" in written and b"mean_cosine" in written


@pytest.mark.slow
def test_hydra_train_with_a_config(lm_data, tmp_path):
    run_command(
        "fairseq-hydra-train", "--config-dir", ROOT / "configs" / "demo", "--config-name", "agg",
        f"task.data={lm_data}", f"common.user_dir={ROOT / 'agg_fairseq'}", f"checkpoint.save_dir={tmp_path / 'run'}",
        "common.cpu=true", "optimization.max_update=2", "task.tokens_per_sample=16", "dataset.max_tokens=64",
        cwd=tmp_path,
    )  # fmt: skip
    saved = state(tmp_path / "run")
    assert saved["cfg"]["criterion"]["agg_rare_fraction"] == 0.2
    assert saved["optimizer_history"][-1]["num_updates"] == 2


@pytest.mark.slow
def test_example_runs_without_fairseq():
    program = (
        "import runpy, sys; sys.modules['fairseq'] = None; sys.argv = ['training_loop.py', '--updates', '60']; "
        "runpy.run_path('examples/training_loop.py')"
    )
    printed = run_command("python", "-c", program).stdout
    losses = [float(value) for value in re.findall(r"loss ([\d.]+)", printed)]
    assert len(losses) == 6 and losses[2] < losses[0] and losses[5] < losses[3]
    rows = [line.split("|")[2:8] for line in printed.splitlines() if line.startswith(("| MLE", "| AGG"))]
    assert len(rows) == 2 and all(float(cell.replace(",", "")) > 0 for row in rows for cell in row)
    assert rows[0] != rows[1]
