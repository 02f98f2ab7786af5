"""scripts/reproduce.sh at --scale tiny, from data to table, with models of a few updates."""

import json
import os
import shutil

import pytest

from scripts.experiments import measures
from tests.conftest import ROOT
from tests.reproducing import LM, reproduce, rows, run_entry_here
from tests.reproducing import run_entry as started

pytestmark = pytest.mark.slow  # command lines: processes of their own


@pytest.fixture(scope="module")
def table_3(prepared_data, tmp_path_factory):
    """The output folder of agg-3, and what was printed."""
    output = tmp_path_factory.mktemp("lm") / "runs"
    printed = reproduce("agg-3", "--scale", "tiny", "--data", prepared_data, "--output", output, *LM)
    return output, printed


def test_table_3_has_the_papers_numbers_beside_ours(table_3):
    output, printed = table_3
    table = rows(printed.stdout)
    assert table[""] == ["MLE, paper", "MLE", "AGG, paper", "AGG", "Human, paper", "Human"]
    assert table["PPL Rare"][0] == "438.67" and table["PPL Rare"][2] == "75.39" and table["PPL Rare"][4:] == ["—", "—"]
    assert table["Uniq Total"][4] == "18920" and 0 < int(table["Uniq Total"][5]) <= 64
    assert all(float(table["PPL Total"][column].replace(",", "")) > 1 for column in (1, 3))
    assert all(0 < float(table["I(W) Total"][column]) <= 1 for column in (1, 3))
    assert "perplexity: split:test" in printed.stdout and "Scale: tiny." in printed.stdout
    kept = json.loads((output / "tables" / "agg-3.json").read_text())
    assert [row["method"] for row in kept["rows"]] == ["MLE", "AGG", "Human"]
    assert (output / "tables" / "agg-3.md").read_text() == printed.stdout
    assert "training agg-mle" in printed.stderr and "6/6" in printed.stderr


def test_what_is_done_is_not_done_again(table_3, prepared_data):
    """Neither trainings nor measures; another table of the same models finds them."""
    output, first = table_3
    arguments = ("--scale", "tiny", "--data", prepared_data, "--output", output, *LM)
    again = started("agg-3", *arguments)
    assert again.stdout == first.stdout and "training" not in again.stderr and "measuring" not in again.stderr
    shown = started("agg-8", *arguments, "--show")
    table = rows(shown.stdout)
    assert table["no g1"][1] == "not run" and table["no g1"][0] == "15.48"
    assert table["AGG"][1] == rows(first.stdout)["PPL Total"][3]
    assert "training" not in shown.stderr


def test_a_run_with_other_settings_is_refused(table_3, prepared_data):
    output, _ = table_3
    result = started(
        "agg-3", "--scale", "tiny", "--data", prepared_data, "--output", output, *LM, "common.seed=2", check=False
    )
    assert result.returncode == 2 and "holds a model of other settings (overrides: " in result.stderr.splitlines()[-1]


def test_another_corpus_at_the_same_place_is_refused(table_3, prepared_data, tmp_path):
    """Its numbers would be those of the old one; the old one may lie elsewhere."""
    output, first = table_3
    moved = shutil.copytree(prepared_data, tmp_path / "moved")
    arguments = ("agg-3", "--scale", "tiny", "--data", moved, "--output", output, *LM)
    assert started(*arguments).stdout == first.stdout
    (moved / "manifest.json").write_text('{"corpus": "another", "bpe": {"kind": "words"}}')
    result = started(*arguments, check=False)
    assert result.returncode == 2 and "other settings (corpus: " in result.stderr.splitlines()[-1]


def test_text_of_two_languages_is_refused_for_a_language_model(mt_data, tmp_path):
    (tmp_path / "data-bin").symlink_to(mt_data)
    (tmp_path / "manifest.json").write_text('{"bpe": {"kind": "words"}}')
    result = started("agg-3", "--scale", "tiny", "--data", tmp_path, "--output", tmp_path / "runs", check=False)
    assert result.returncode == 2 and "found text of two languages" in result.stderr.splitlines()[-1]


def test_a_figure_of_the_same_models(table_3, prepared_data):
    output, _ = table_3
    printed = started("agg-figure-3", "--scale", "tiny", "--data", prepared_data, "--output", output, *LM)
    pictures = printed.stdout.splitlines()[-2:]
    assert [os.path.basename(path) for path in pictures] == [
        "agg-figure-3-projection.png", "agg-figure-3-singular-values.png",
    ]  # fmt: skip
    assert all(os.path.getsize(path) > 1000 for path in pictures)


def test_a_dry_run_prints_the_trainings_and_starts_none(prepared_data, tmp_path):
    printed = reproduce(
        "agg-3", "--scale", "tiny", "--data", prepared_data, "--output", tmp_path / "new", "--dry-run"
    ).stdout
    trainings = [line for line in printed.splitlines() if not line.startswith("#")]  # a comment says what they take
    assert len(trainings) == 2 and all("scripts/train.sh" in line and "size=tiny" in line for line in trainings)
    assert "# agg-3: 2 trainings" in printed
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("key", "missing"), [("agg-6", "word-similarity"), ("agps-3", "eflomal")])
def test_a_dry_run_needs_no_data_to_measure(key, missing, prepared_data, mt_data, tmp_path, monkeypatch):
    monkeypatch.setenv("AGG_DATA", str(tmp_path))
    monkeypatch.setattr(measures.importlib.util, "find_spec", lambda name: None)
    data = prepared_data
    if key == "agps-3":
        data = tmp_path / "parallel"
        data.mkdir()
        (data / "data-bin").symlink_to(mt_data)
        (data / "manifest.json").write_text('{"bpe": {"kind": "words"}}')
    options = ("--scale", "tiny", "--data", data, "--output", tmp_path / "runs")
    printed = run_entry_here(key, *options, "--dry-run")
    assert printed.returncode == 0 and "scripts/train.sh" in printed.stdout, printed.stderr
    assert f"{key} cannot be measured yet: " in printed.stderr and missing in printed.stderr
    failed = run_entry_here(key, *options)
    assert failed.returncode == 2 and missing in failed.stderr and failed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("agg-12",), "found the entry 'agg-12'; expected one of agg-1, "),
        ((), "found no ENTRY"),
        (("agg-3", "max_update"), "or key=value, for every training"),
        (("agg-3", "Max-Update=3"), "expected key=value"),
        (("agg-3", "size=small"), "expected --scale, --data or --output for that"),
        (("agg-3", "--show", "--dry-run"), "found --show and --dry-run"),
        (("agg-7", "--scale", "tiny", "--output", "/nowhere"), "found no --data; expected a folder of"),
        (("agg-3", "--data", "/nowhere"), "--data: found no folder /nowhere"),
        (("agg-3", "common.seed=7", "--seeds", "1", "2"), "found common.seed= with --seeds"),
        (("demo", "--data", str(ROOT / "docs")), "which was not prepared"),
        (("agg-3", "--topk", "3"), "--topk: found it with agg-3, which cannot take it"),
        (("agg-3", "--jobs", "0"), "--jobs: found '0'; expected a whole number from 1"),
        (("agg-3", "--seeds", "1", "x"), "--seeds/--seed: found 'x'; expected a whole number from 1"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, message):
    result = run_entry_here(*arguments)
    assert result.returncode == 2 and message in result.stderr and result.stderr.count("\n") == 1


def test_all_entries_are_listed():
    """49 tables and figures, those of a paper together, then our own experiments."""
    listed = [line.split()[0] for line in reproduce("--list").stdout.splitlines()]
    assert len(listed) == 54 and listed[-5:] == ["demo", "objectives", "f2", "multi30k", "cures"]


def test_several_entries_and_seeds_side_by_side(prepared_data, tmp_path):
    """A folder per seed; each model once, though both entries have it; then nothing is trained or measured again."""
    arguments = ("--scale", "tiny", "--data", prepared_data, "--output", tmp_path, "--seeds", "1", "2", "--jobs", "2")
    printed = started("agg-10", "agg-figure-3", *arguments, *LM, timeout=600)
    assert {path.name for path in tmp_path.iterdir()} == {"seed-1", "seed-2", "tables"}
    trained = [line for line in printed.stderr.splitlines() if line.startswith("reproduce: training ")]
    assert len(trained) == 2 * 2 == len(set(trained))
    mean, deviation = rows(printed.stdout)["AGG"][-1].split(" ± ")
    numbers = json.loads((tmp_path / "tables" / "agg-10.json").read_text())["rows"][1]["I(W) Rare"]
    first, second = numbers["1"], numbers["2"]
    assert first != second and mean == f"{(first + second) / 2:.3f}"
    assert deviation == f"{abs(first - second) / 2**0.5:.3f}" and "over n = 2 seeds: 1, 2." in printed.stdout
    pictures = {path.name for path in (tmp_path / "tables").glob("*.png")}
    assert len(pictures) == 2 * 2 and "agg-figure-3-projection-seed-2.png" in pictures
    again = started("agg-10", *arguments, *LM)
    assert printed.stdout.startswith(again.stdout)
    assert "training" not in again.stderr and "measuring" not in again.stderr


def test_a_training_that_fails_is_named_and_starts_no_other(prepared_data, tmp_path):
    arguments = ("--scale", "tiny", "--data", prepared_data, "--output", tmp_path, *LM, "criterion.label_smoothing=7")
    failed = started("agg-8", *arguments, check=False)
    assert failed.returncode == 2 and "training agg-mle failed (status 2); its output is in" in failed.stderr
    assert failed.stderr.count("reproduce: training ") == 1 and not failed.stdout
