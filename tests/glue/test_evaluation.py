"""The evaluations as they are used from a notebook: functions of opened checkpoints that return a Result."""

import logging
import re

import torch

from agg_fairseq.cli.main import main
from tests.commands import TRANSLATION, save_checkpoint
from tests.conftest import ROOT


def test_a_command_opens_each_checkpoint_once(lm_runs, lm_data, mt_data, tmp_path, monkeypatch, capsys):
    openings, load = {}, torch.load

    def counting(path, *arguments, **options):
        openings[str(path)] = openings.get(str(path), 0) + 1
        return load(path, *arguments, **options)

    monkeypatch.setattr(torch, "load", counting)
    paths = [lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")]
    rows = len((mt_data / "dict.de.txt").read_text().splitlines()) + 4
    translators = [save_checkpoint(tmp_path / name / "c.pt", torch.randn(rows, 4), TRANSLATION) for name in "ab"]
    (tmp_path / "links").write_text("0-0\n" * len((mt_data.parent / "train.en").read_text().splitlines()))
    (tmp_path / "pairs").write_text("w0\tw1\t3\nw2\tw3\t1\nw4\tw5\t2\n")
    data, output = ("--data", lm_data), ("--output", tmp_path / "output")
    for command, *arguments in (
        ("eval-lm", *paths, *data),
        ("generate-lm", paths[0], *data, "-o", tmp_path / "texts", "--prefix-length", 5, "--length", 9),
        ("isotropy", *paths, *data),
        ("neighbors", *paths, *data, "--words", "w1"),
        ("word-similarity", *paths, *data, "--datasets", tmp_path / "pairs"),
        ("average-checkpoints", *paths, *output),
        ("convert-to-f2", paths[0], *data, *output, "--positions", 100),
        ("align-sim", *translators, "--data", mt_data, "--alignments", tmp_path / "links"),
    ):
        openings.clear()
        assert main([command, *map(str, arguments)]) == 0, capsys.readouterr().err
        assert openings == {str(path): 1 for path in (*paths, *translators) if path in arguments}, command


def test_the_page_as_it_is_pasted(lm_runs, lm_data, tmp_path, monkeypatch, capsys):
    """The section "From Python" of docs/evaluation.md, for a word that this corpus has."""
    blocks = re.findall(r"```python\n([^>].*?)```", (ROOT / "docs" / "evaluation.md").read_text(), re.S)
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "runs").symlink_to(lm_runs)
    (tmp_path / "data-bin" / "wikitext-2").symlink_to(lm_data)
    monkeypatch.chdir(tmp_path)
    try:
        exec("\n".join(blocks).replace("river", "w3"), {})
    finally:
        logging.disable(logging.NOTSET)
    assert "| human |" in capsys.readouterr().out and (tmp_path / "results" / "agg.jsonl").is_file()
