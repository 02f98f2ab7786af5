"""Everything through the real command lines: train, resume, evaluate with the stock tools,
generate."""

import json
import os
import re

import pytest

from tests.commands import read_result
from tests.conftest import ROOT, SMALL_LM, TRAINING, USER_DIR, called, run_command
from tests.small_trainings import EVERY_CRITERION, FAMILIES

AGG = ("--criterion", "agg", "--agg-rare-fraction", "0.3")
BLOCKS = ("--tokens-per-sample", "16", "--max-tokens", "64", "--cpu")


def perplexity_of_fairseq(data, checkpoint, *options):
    options = ("--path", checkpoint, *BLOCKS, *options)
    result = run_command("fairseq-eval-lm", data, *options)
    return float(re.search(r"Perplexity: ([\d.]+)", result.stdout + result.stderr)[1])


@pytest.mark.slow
def test_checkpoints_in_stock_eval_lm(lm_data, lm_runs, tmp_path):
    """Without --user-dir; our total perplexity is the same to the digits that fairseq-eval-lm
    prints. With it the options that fairseq saves as a namespace, which torch >= 2.6 would not
    open."""
    checkpoint, output = lm_runs / "agg" / "checkpoint_best.pt", tmp_path / "eval.json"
    for options in ((), ("--context-window", "8")):
        ours = ("eval-lm", checkpoint, "--data", lm_data, *options, *BLOCKS[:-1], "--json", output)
        run_command("agg-fairseq", *ours)
        found = read_result(output)["agg"]["perplexity"]["total"]
        expected = perplexity_of_fairseq(lm_data, checkpoint, *options)
        assert found == pytest.approx(expected, abs=0.006)
    for name, base, criterion, more in (
        ("transformer", SMALL_LM, EVERY_CRITERION["unlikelihood_sequence"], ()),
        ("lstm", FAMILIES["lstm_lm, tied"], EVERY_CRITERION["cosreg"], ("--user-dir", USER_DIR)),
    ):
        options = ("--save-dir", tmp_path / name, "--max-update", 4, "--disable-validation")
        called("train", lm_data, *base, *TRAINING, *options, criterion)
        assert perplexity_of_fairseq(lm_data, tmp_path / name / "checkpoint_last.pt", *more) < 80


@pytest.mark.slow
def test_user_dir_in_every_form(lm_data, tmp_path):
    """From another folder than the checkout; a link has another name than the package."""
    link = tmp_path / "plugin"
    link.symlink_to(USER_DIR)
    relative = os.path.relpath(USER_DIR, tmp_path)
    installed = run_command("agg-fairseq", "user-dir").stdout
    options = (*SMALL_LM, *AGG, "--max-update", 1, "--no-save")
    for user_dir in (relative, f"{ROOT / 'agg_fairseq'}/", link, installed.strip()):
        run_command("fairseq-train", lm_data, "--user-dir", user_dir, *options, cwd=tmp_path)


def test_statistics_reach_the_log(lm_data):
    arguments = ("--max-update", 3, "--embedding-stats-interval", 2, "--no-save")
    printed, has_statistics, rare = called("train", lm_data, *SMALL_LM, *AGG, *arguments), [], []
    for line in printed.splitlines():
        if line.startswith('{"') and '"update"' in line:
            values = json.loads(line)
            has_statistics.append("isotropy" in values and "mean_cosine" in values)
            rare += [int(values["rare_tokens"])] if "rare_tokens" in values else []
    assert has_statistics == [True, False, True] and "valid_isotropy" in printed
    # the words that the updates before have not seen, and more; from the second update on
    assert len(rare) == 2 and 17 < rare[1] <= rare[0] < 56


@pytest.mark.slow
def test_example_runs_without_fairseq():
    program = (
        "import runpy, sys; sys.modules['fairseq'] = None; sys.argv = ['training_loop.py', "
        "'--updates', '60']; runpy.run_path('examples/training_loop.py')"
    )
    printed = run_command("python", "-c", program).stdout
    losses = [float(value) for value in re.findall(r"loss ([\d.]+)", printed)]
    assert len(losses) == 9 and all(losses[start + 2] < losses[start] for start in (0, 3, 6))
    assert len({*re.findall(r"^\| (?:MLE|AGG).*?\|(.*)$", printed, re.MULTILINE)}) == 3
