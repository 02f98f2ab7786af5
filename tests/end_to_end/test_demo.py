"""scripts/demo.sh from its first line to its pictures."""

import json
import xml.etree.ElementTree

import pytest

from tests.conftest import ROOT, run_command
from tests.reproducing import run_entry, run_entry_here

SCRIPT = ROOT / "scripts" / "demo.sh"


def check(output, names):
    rows = json.loads((output / "table.json").read_text())["rows"]
    assert [row["method"] for row in rows] == [*names, "human"]
    assert (output / "table.md").read_text().count("\n") >= len(names) + 3
    for picture in ("projection.png", "singular-values.png", "rare-tokens.png"):
        assert (output / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for name in names:
        assert (output / name / "train.log").stat().st_size > 0


@pytest.mark.slow
def test_demo_in_small(tmp_path):
    """From another folder, then again: what is done is not done again."""
    output = tmp_path / "the demo"
    options = ("--updates", "12", "--vocabulary", "400", "--output", output.name)
    first = run_command("bash", SCRIPT, *options, cwd=tmp_path)
    assert "| agg-0.2   |" in first.stdout and "12/12" in first.stderr
    assert "| Δ agg-0.2 |" in first.stdout and first.stdout.splitlines()[-1] == str(output / "report.html")
    assert "<h1>" in (output / "report.html").read_text(encoding="utf-8")
    check(output, ["mle", "agg-0.2"])
    between_epochs = [path.name for path in (output / "mle").glob("checkpoint_*_*.pt")]
    assert len(between_epochs) == 1  # of which an interrupted training goes on
    again = run_command("bash", SCRIPT, *options, cwd=tmp_path)
    assert "mle is trained already" in again.stderr and "12/12" not in again.stderr and again.stdout == first.stdout
    other = run_command("bash", SCRIPT, *options, "--seed", "7", cwd=tmp_path, check=False)
    assert other.returncode == 2 and "other settings" in other.stderr
    models = ("--jobs", "2", "--model", "mle --criterion mle", "--model", "bad --criterion agg --agg-alpha 7")
    failed = run_command("bash", SCRIPT, *options, *models, cwd=tmp_path, check=False)
    assert failed.returncode == 2 and "mle is trained already" in failed.stderr and not failed.stdout
    assert "--agg-alpha between 0 and 1" in failed.stderr and "training bad failed" in failed.stderr
    changed = ("--model", "mle --criterion mle --dropout 0.3")
    refused = run_command("bash", SCRIPT, *options, *changed, cwd=tmp_path, check=False)
    assert refused.returncode == 2 and "holds a model of other settings (overrides: " in refused.stderr
    svg = tmp_path / "values.svg"
    run_command("agg-fairseq", "plot", "singular-values", output / "mle" / "checkpoint_best.pt", "--output", svg)
    assert xml.etree.ElementTree.parse(svg).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--corpus", "latin"), "choose from 'python', 'wikitext'"),
        (("--corpus", "wikitext"), "found no --data"),
        (("--corpus", "wikitext", "--data", "/nowhere"), "wiki.train.tokens"),
        (("--updates", "0"), "whole number"),
        (("--rare-fractions", "1.5"), "between 0 and 1"),
        (("--rare-fractions", " "), "between 0 and 1"),
        (("--fast",), "--fast"),
        (("--seed",), "expected at least one argument"),
        (("--dimension", "30"), "multiple of 4"),
        (("--topk", "3"), "--topk: found it with demo, which cannot take it"),
        (("--output", ""), "--output: found ''"),
        (("--model", "mle"), "then options with --criterion"),
        (("--model", "-n --criterion mle"), "expected a name"),
        (("--model", "a --criterion mle", "--model", "a --criterion agg"), "the name 'a' twice"),
        (("--model", "human --criterion mle"), "it is taken"),
        (("--model", "seed-2 --criterion mle"), "it is taken"),
        (("--model", ""), "expected a name"),
        (("--model", "data-bin --criterion mle"), "it is taken"),
    ],
)
def test_bad_options_are_one_line(arguments, words, tmp_path):
    result = run_entry_here("demo", *arguments, cwd=tmp_path)
    assert result.returncode == 2 and words in result.stderr and result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_folder_of_an_earlier_version_is_refused(tmp_path):
    """Its models were trained by other means."""
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / "done").touch()
    result = run_entry("demo", "--vocabulary", "400", "--output", tmp_path, check=False)
    assert result.returncode == 2 and "found no settings.json in it" in result.stderr


@pytest.mark.slow
def test_demo_on_wikitext(shared_data, tmp_path):
    options = ("--corpus", "wikitext", "--data", shared_data / "wikitext-2", "--updates", "5", "--vocabulary", "2000")
    run_command("bash", SCRIPT, *options, "--output", tmp_path / "out", timeout=900)
    check(tmp_path / "out", ["mle", "agg-0.2"])
    assert len((tmp_path / "out" / "data-bin" / "dict.txt").read_text(encoding="utf-8").splitlines()) <= 2000
