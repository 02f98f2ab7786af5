"""scripts/f2_softmax.sh and scripts/multi30k.sh from their first line to their tables."""

import json

import pytest

from tests.conftest import ROOT, run_command
from tests.reproducing import rows, run_entry_here

pytestmark = pytest.mark.slow  # command lines: processes of their own

F2 = ROOT / "scripts" / "f2_softmax.sh"
MULTI30K = ROOT / "scripts" / "multi30k.sh"


@pytest.mark.parametrize(
    ("entry", "arguments", "words"),
    [
        ("f2", (), "found no --data"),
        ("f2", ("--fast",), "--fast"),
        ("f2", ("--topk",), "--topk: expected one argument"),
        ("f2", ("--data", "/nowhere"), "wiki.train.tokens"),
        ("f2", ("--data", "/nowhere", "--topk", "0"), "--topk: found '0'"),
        ("f2", ("--data", "/nowhere", "--max-texts", "x"), "--max-texts: found 'x'"),
        ("multi30k", (), "found no --data"),
        ("multi30k", ("--data", "/nowhere"), "found no train.en"),
        ("multi30k", ("--data", "/nowhere", "--updates", "-1"), "--updates: "),
        ("multi30k", ("--data", "/nowhere", "--output", ""), "--output: found ''"),
    ],
)
def test_bad_options_are_one_line(entry, arguments, words, tmp_path):
    result = run_entry_here(entry, *arguments, cwd=tmp_path)
    assert result.returncode == 2 and words in result.stderr and result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def head_of(source, target, lines):
    target.write_text("\n".join(source.read_text(encoding="utf-8").split("\n")[:lines]) + "\n", encoding="utf-8")


def test_f2_softmax_on_the_first_lines_of_wikitext(shared_data, tmp_path):
    """Trains all, continues all, measures all; then again: what is done is not done again."""
    data = tmp_path / "the data"
    data.mkdir()
    for split, lines in {"train": 2000, "valid": 60, "test": 60}.items():
        head_of(shared_data / "wikitext-2" / f"wiki.{split}.tokens", data / f"wiki.{split}.tokens", lines)
    options = ("--data", data, "--output", "out", "--updates", "4", "--dimension", "8", "--jobs", "2")
    first = run_command("bash", F2, *options, "--max-texts", "2", cwd=tmp_path, timeout=1500)
    measured = json.loads((tmp_path / "out" / "text-metrics.json").read_text())["rows"]
    assert len(measured) == 10 + 1 and first.stderr.count("continuing the test split with") == 10
    assert "| human" in (tmp_path / "out" / "text-metrics.md").read_text()
    assert "f2-top3-decoupled" in first.stdout and "PPL total" in first.stdout
    again = run_command("bash", F2, *options, "--max-texts", "2", cwd=tmp_path, timeout=600)
    assert again.stderr.count("is trained already") == 6 and "continuing" not in again.stderr
    assert again.stdout == first.stdout
    others = run_command("bash", F2, *options, "--max-texts", "3", "--topk", "5", cwd=tmp_path, timeout=600)
    assert others.stderr.count("continuing the test split with") == 10 and "mle-top5" in others.stdout


def test_multi30k_says_that_a_training_failed(shared_data, tmp_path):
    """The first of two side by side: no score is printed."""
    options = ("--data", shared_data / "multi30k", "--output", "out", "--updates", "2", "--vocabulary", "500")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mle").write_text("in the way of the checkpoints")
    failed = run_command("bash", MULTI30K, *options, "--jobs", "2", cwd=tmp_path, check=False, timeout=900)
    assert failed.returncode == 2 and "error" in failed.stderr and "BLEU" not in failed.stdout


def test_multi30k_in_small(shared_data, tmp_path):
    data = tmp_path / "the data"
    data.mkdir()
    for split, lines in {"train": 300, "valid": 20, "test": 10}.items():
        for language in ("en", "de"):
            head_of(shared_data / "multi30k" / f"{split}.{language}", data / f"{split}.{language}", lines)
    options = ("--data", data, "--output", "out", "--updates", "20", "--vocabulary", "500", "--dimension", "8")
    first = run_command("bash", MULTI30K, *options, "--jobs", "2", cwd=tmp_path, timeout=900)
    table = rows(first.stdout)
    models = ("mle", "cosreg", "agps", "agg-0.3", "bias-agg-0.3", "f2", "f2-greedy-class")
    assert len(table) == 2 + len(models)
    assert all(0 <= float(table[name][0]) <= 100 and 0 <= float(table[name][3]) <= 1 for name in models)
    assert "nrefs:1|case:mixed" in first.stdout
    for name in ("f2/generate.log", "f2/generate-greedy-class.log"):
        log = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert sum(line.startswith("D-") for line in log.splitlines()) == 10
    again = run_command("bash", MULTI30K, *options, cwd=tmp_path, timeout=600)
    assert again.stderr.count("is trained already") == 6 and again.stdout == first.stdout
    other = run_command("bash", MULTI30K, *options, "--seed", "7", cwd=tmp_path, check=False)
    assert other.returncode == 2 and "other settings" in other.stderr
