"""scripts/f2_softmax.sh and scripts/multi30k.sh from their first line to their tables."""

import json

import pytest

from tests.conftest import ROOT, run_command

F2 = ROOT / "scripts" / "f2_softmax.sh"
MULTI30K = ROOT / "scripts" / "multi30k.sh"


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        (F2, (), "found no --data"),
        (F2, ("--fast",), "'--fast'"),
        (F2, ("--topk",), "expected a value"),
        (F2, ("--data", "/nowhere"), "wiki.train.tokens"),
        (F2, ("--data", "/nowhere", "--topk", "0"), "--topk: found '0'"),
        (F2, ("--data", "/nowhere", "--max-texts", "x"), "--max-texts: found 'x'"),
        (MULTI30K, (), "found no --data"),
        (MULTI30K, ("--data", "/nowhere"), "found no train.en"),
        (MULTI30K, ("--data", "/nowhere", "--updates", "-1"), "--updates: found '-1'"),
    ],
)
def test_bad_options_are_one_line(script, arguments, words, tmp_path):
    result = run_command("bash", script, *arguments, cwd=tmp_path, check=False)
    assert result.returncode == 2 and words in result.stderr and result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def head_of(source, target, lines):
    target.write_text("\n".join(source.read_text(encoding="utf-8").split("\n")[:lines]) + "\n", encoding="utf-8")


@pytest.mark.slow
def test_f2_softmax_on_the_first_lines_of_wikitext(shared_data, tmp_path):
    """Trains all, continues all, measures all; then again: what is done is not done again."""
    data = tmp_path / "the data"
    data.mkdir()
    for split, lines in {"train": 2000, "valid": 60, "test": 60}.items():
        head_of(shared_data / "wikitext-2" / f"wiki.{split}.tokens", data / f"wiki.{split}.tokens", lines)
    options = ("--data", data, "--output", "out", "--updates", "4", "--dimension", "8", "--jobs", "2")
    first = run_command("bash", F2, *options, "--max-texts", "2", cwd=tmp_path, timeout=1500).stdout
    measured = json.loads((tmp_path / "out" / "text-metrics.json").read_text())["files"]
    assert len(measured) == 10 and first.count("2 prefixes continued") == 10
    assert "| human" in (tmp_path / "out" / "text-metrics.md").read_text()
    again = run_command("bash", F2, *options, "--max-texts", "2", cwd=tmp_path, timeout=600).stdout
    assert again.count("is trained already") == 6 and "prefixes continued" not in again
    others = run_command("bash", F2, *options, "--max-texts", "3", "--topk", "5", cwd=tmp_path, timeout=600).stdout
    assert others.count("3 prefixes continued") == 10 and "mle-top5" in others


@pytest.mark.slow
def test_multi30k_says_that_a_training_failed(shared_data, tmp_path):
    """The first of two side by side: no score is printed."""
    options = ("--data", shared_data / "multi30k", "--output", "out", "--updates", "2", "--vocabulary", "500")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mle").write_text("in the way of the checkpoints")
    failed = run_command("bash", MULTI30K, *options, "--jobs", "2", cwd=tmp_path, check=False, timeout=900)
    assert failed.returncode == 1 and "a training failed" in failed.stderr and "BLEU" not in failed.stdout


@pytest.mark.slow
def test_multi30k_in_small(shared_data, tmp_path):
    data = tmp_path / "the data"
    data.mkdir()
    for split, lines in {"train": 300, "valid": 20, "test": 10}.items():
        for language in ("en", "de"):
            head_of(shared_data / "multi30k" / f"{split}.{language}", data / f"{split}.{language}", lines)
    options = ("--data", data, "--output", "out", "--updates", "3", "--vocabulary", "500", "--dimension", "8")
    first = run_command("bash", MULTI30K, *options, "--jobs", "2", cwd=tmp_path, timeout=900).stdout
    assert first.count("BLEU") == 3 and first.count("nrefs:1|case:mixed") == 3
    assert len((tmp_path / "out" / "f2.de").read_text(encoding="utf-8").splitlines()) == 10
    again = run_command("bash", MULTI30K, *options, cwd=tmp_path, timeout=600).stdout
    assert again.count("is trained already") == 2
    other = run_command("bash", MULTI30K, *options, "--seed", "7", cwd=tmp_path, check=False)
    assert other.returncode == 2 and "other settings" in other.stderr
