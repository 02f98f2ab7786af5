"""`agg-fairseq report` of real runs: every section, what is kept, and what is left out."""

import os
import re
import shutil
import sys

import pytest
import torch

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.cli.main import main
from agg_fairseq.f2 import FactorizedSoftmax
from agg_fairseq.modules import UnigramLinear
from agg_fairseq.report import ReportOptions, write_report
from agg_fairseq.report.runs import count_parameters, different_settings
from agg_fairseq.report.sections import SECTIONS
from tests.commands import refused, run

ADDED = {"not-shown", "glossary"}


def anchors(html):
    return set(re.findall(r'<section id="([^"]+)"', html))


@pytest.fixture(scope="module")
def options(lm_runs, lm_data, tmp_path_factory):
    pairs = tmp_path_factory.mktemp("pairs") / "PAIRS.txt"
    pairs.write_text("w0\tw1\t3\nw2\tw3\t1\nw0\tw4\t2\nw1\tw9\t5\n")
    shown = ["--datasets", pairs, "--words", "w3", "w7", "--split", "train", "--max-texts", "3"]
    return [lm_runs / "mle", lm_runs / "agg", "--data", lm_data, *shown]


@pytest.fixture(scope="module")
def written(options, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["report", *map(str, options), "--output", str(path)]) == 0
    return path


def test_every_section_of_the_report(written):
    html = written.read_text()
    assert anchors(html) == set(SECTIONS) - {"translations", "alignment"} | ADDED
    for words in (
        "Comparison of mle, agg", "--agg-rare-fraction", "PPL within rare", "I(W) ±", "PAIRS", "MSJ-2",
        "different tokens", "no --translations", "agg against mle (baseline)",
        "the first 30%, the next 50% and the last 20% of the vocabulary",
        "Share of the dimensions that the embeddings use evenly",
    ):  # fmt: skip
        assert words in html, words
    assert html.count('<img alt="') == 9 and "<script" not in html
    assert not re.search(r'(?:src|href)="(?!#|data:)', html)
    for section in ("language-model", "embeddings", "texts"):  # every row is explained
        text = html.partition(f'<section id="{section}">')[2].partition("</section>")[0]
        assert text.count('<th scope="row">') == text.count('<th scope="row"><a class="term"') >= 8
    assert set(re.findall(r'href="#(term-[^"]*)"', html)) == set(re.findall(r'<dt id="([^"]*)"', html))


@pytest.mark.slow
def test_what_is_kept_is_not_measured_again(written, options, lm_runs, capsys):
    """The same page from the same files, but for its footer, which says when it was made."""
    before, kept = written.read_text().split("<footer>")[0], written.with_name("report.html-files")
    made = {path: path.stat().st_mtime_ns for path in kept.iterdir()}
    run(capsys, "report", *options, "--output", written)
    assert written.read_text().split("<footer>")[0] == before
    assert {path: path.stat().st_mtime_ns for path in kept.iterdir()} == made
    os.utime(lm_runs / "agg" / "checkpoint_best.pt")
    run(capsys, "report", *options, "--output", written)
    again = {path.name.partition("-")[0] for path in kept.iterdir() if path.stat().st_mtime_ns != made[path]}
    assert again == {"perplexity", "isotropy", "neighbors", "word_similarity", "texts", "text_metrics"}


def test_an_error_in_a_section_does_not_cost_the_others(lm_runs, lm_data, tmp_path):
    """From Python: a file that is not there, and a name that is never taken for HTML."""
    name, missing = '<b>alert("1")</b>', tmp_path / "none.txt"
    options = ReportOptions(max_texts=1, words=["w3"], datasets=[missing])
    left_out = write_report({name: lm_runs / "agg"}, lm_data, tmp_path / "r.html", options)
    html = (tmp_path / "r.html").read_text()
    assert list(left_out) == ["What came out", "Translations", "Word similarity", "Similarity of aligned words"]
    expected = f"--datasets: found no file {missing}; expected files"
    assert str(left_out["Word similarity"]).startswith(expected) and f"error: {expected}" in html
    assert "<b>" not in html and "&lt;b&gt;alert" in html and "not the same in all runs" not in html


def test_translation_runs(translator, mt_data, tmp_path, capsys):
    """BLEU, AlignSim and translations side by side; without a log there are no curves."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(translator, tmp_path / name / "checkpoint_last.pt")
        lines = f"S-0\t{name} w1\nT-0\tt1 t2 t3 t4 t5\nH-0\t-0.5\tt1 t2 t3 t4 {name}\nD-0\t-0.5\tt1 t2 t3 t4 {name}\n"
        (tmp_path / f"{name}.log").write_text(lines)
    sentences = len((mt_data.parent / "train.en").read_text().splitlines())
    (tmp_path / "links").write_text("0-0\n" * sentences)
    arguments = ["--translations", tmp_path / "a.log", tmp_path / "b.log", "--alignments", tmp_path / "links"]
    path = tmp_path / "r.html"
    run(capsys, "report", tmp_path / "a", tmp_path / "b", "--data", mt_data, *arguments, "--words", "w1", "-o", path)
    html = path.read_text()
    shown = {"verdict", "runs", "translations", "embeddings", "neighbors", "alignment", "frequencies"}
    assert anchors(html) == shown | ADDED
    assert "t1 t2 t3 t4 b" in html and "AlignSim" in html and "All settings are the same" in html


def test_report_refuses(lm_runs, lm_data, translator, tmp_path, capsys, monkeypatch):
    (tmp_path / "mt").mkdir()
    shutil.copy(translator, tmp_path / "mt" / "checkpoint_last.pt")
    monkeypatch.chdir(lm_runs)
    start = ("report", "--data", lm_data, "--output", tmp_path / "r.html")
    for arguments, words in (
        (("mle", "--output", tmp_path / "r.pdf"), "expected a name ending in .html"),
        ((tmp_path,), "found neither checkpoint_best.pt nor"),
        (("mle", "--data", tmp_path / "none"), "no such folder"),
        (("mle", tmp_path / "mt"), "found the task translation; expected language_modeling"),
        (("mle", "--name", "human"), "'human', a row"),
        (("mle", "agg", "--translations", "x.log"), "found 1 logs for 2 runs"),
    ):
        assert words in refused(capsys, *start, *arguments)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "jinja2 is missing; pip install '.[eval]'" in refused(capsys, *start, "mle")
    assert not (tmp_path / "r.html").exists()


def test_settings_by_hand():
    """An option is shown where it comes first: the criterion's copy of the seed is none of its own."""

    def different(*configurations):
        return different_settings([{"cfg": one} for one in configurations])

    first = {"common": {"seed": 1, "log_file": "a"}, "criterion": {"_name": "mle", "seed": 1}, "model": None}
    agg = {"_name": "agg", "seed": 2, "agg_alpha": 0.1, "agg_window": 0, "agg_static": False}
    second = {"common": {"seed": 2, "log_file": "b"}, "criterion": agg, "optimizer": {"adam_betas": [0.9, 0.98]}}
    assert different(first, second) == [
        ("--seed", ["1", "2"]),
        ("--criterion", ["mle", "agg"]),
        ("--adam-betas", [None, "0.9 0.98"]),
        ("--agg-alpha", [None, "0.1"]),
    ]
    assert different(first, first) == []
    shares = ({"agg_alpha": 0.03, "agg_rare_fraction": 0.3}, {"agg_rare_fraction": 0.5})
    found = different(*({"criterion": {"_name": "agg", **share}} for share in shares))
    assert found == [("--agg-rare-fraction", ["0.3", "0.5"])]
    started = ({"checkpoint": {"restore_file": file}} for file in ("checkpoint_last.pt", "mle.pt"))
    assert different(*started) == [("--restore-file", [None, "mle.pt"])]


def test_parameters_are_counted_once(lm_runs):
    """V·D of the tied embedding, which a GPU saves as two tensors; what is no parameter counts for nothing."""
    model = Checkpoint(lm_runs / "mle" / "checkpoint_last.pt").state["model"]
    tied = {"decoder.output_projection.weight", "decoder.embed_positions._float_tensor", "decoder.version"}
    expected = sum(value.numel() for name, value in model.items() if name not in tied)
    assert count_parameters(model) == count_parameters({key: value.clone() for key, value in model.items()}) == expected
    for layer in (
        FactorizedSoftmax(torch.tensor([0, 1, 1]), 4),
        UnigramLinear(torch.nn.Parameter(torch.zeros(3, 4)), torch.ones(3)),
    ):
        state = {f"decoder.output_projection.{name}": value for name, value in layer.state_dict().items()}
        assert count_parameters(state) == sum(parameter.numel() for parameter in layer.parameters())
