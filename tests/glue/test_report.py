"""`agg-fairseq report` of real runs: every section, what is kept, and what is left out."""

import base64
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.cli.main import main
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import Cache, Column, Result
from agg_fairseq.f2 import FactorizedSoftmax
from agg_fairseq.modules import UnigramLinear
from agg_fairseq.report import ReportOptions, page, sections, write_report
from agg_fairseq.report.runs import count_parameters, different_settings
from agg_fairseq.report.sections import SECTIONS
from tests.glue.test_isotropy_command import translator  # noqa: F401 — a fixture

TRANSLATION_ONLY = {"translations", "alignment"}
LANGUAGE_ONLY = {"language-model", "texts", "word-similarity"}
ADDED = {"not-shown", "glossary"}


def report(*arguments):
    return main(["report", *map(str, arguments)])


def anchors(html):
    return set(re.findall(r'<section id="([^"]+)"', html))


@pytest.fixture(scope="module")
def options(lm_runs, lm_data, tmp_path_factory):
    """The arguments of a report with all that a language model can have, but for --output."""
    pairs = tmp_path_factory.mktemp("pairs") / "PAIRS.txt"
    pairs.write_text("w0\tw1\t3\nw2\tw3\t1\nw0\tw4\t2\nw1\tw9\t5\n")
    runs = [lm_runs / "mle", lm_runs / "agg"]
    texts = ["--gen-subset", "train", "--max-texts", "3"]
    return [*runs, "--data", lm_data, "--datasets", pairs, "--words", "w3", "w7", *texts]


@pytest.fixture(scope="module")
def written(options, tmp_path_factory):
    """A report, and the folder of what is kept beside it."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert report(*options, "--output", path) == 0
    return path


def test_every_section(written):
    html = written.read_text()
    assert anchors(html) == set(SECTIONS) - TRANSLATION_ONLY | ADDED
    for words in (
        "Comparison of mle, agg",
        "--agg-rare-fraction",
        "PPL total",
        "I(W) ±",
        "PAIRS",
        "MSJ-2",
        "different tokens",
        "no --translations",
        "agg against mle (baseline)",
        "the first 30%, the next 50% and the last 20% of the vocabulary",
        "Share of the dimensions that the embeddings use evenly",
    ):
        assert words in html, words
    assert html.count('<img alt="') == 9
    assert not re.search(r'(?:src|href)="(?!#|data:)', html)
    for section in ("language-model", "embeddings", "texts"):  # every row is explained
        text = html.partition(f'<section id="{section}">')[2].partition("</section>")[0]
        assert text.count('<th scope="row">') == text.count('<th scope="row"><a class="term"') >= 8
    assert set(re.findall(r'href="#(term-[^"]*)"', html)) == set(re.findall(r'<dt id="([^"]*)"', html))
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html and html.count("<script") == 1


def text_of(path):
    """The page without its footer, which says when it was made."""
    return path.read_text().split("<footer>")[0]


@pytest.fixture
def calls(monkeypatch):
    """The names of the slow evaluations that were made."""
    made = []

    def counted(function):
        @functools.wraps(function)
        def call(*arguments, **options):
            made.append(function.__name__)
            return function(*arguments, **options)

        return call

    for name in ("perplexity", "generate_texts"):
        monkeypatch.setattr(sections, name, counted(getattr(sections, name)))
    return made


@pytest.mark.slow
def test_what_is_kept_is_not_measured_again(written, options, lm_runs, calls, tmp_path):
    """The same page without a measurement; another option, or a changed checkpoint, is measured again."""
    before = text_of(written)
    assert report(*options, "--output", written) == 0
    assert calls == [] and text_of(written) == before
    copied = tmp_path / "report.html"
    shutil.copytree(f"{written}-files", f"{copied}-files")
    os.utime(lm_runs / "agg" / "checkpoint_best.pt")
    assert report(*options, "--output", copied) == 0
    assert calls == ["perplexity", "generate_texts"]
    assert report(*options, "--groups", "frequency", "--output", copied) == 0
    assert calls[2:] == ["perplexity"]


DAMAGES = {
    "cut off": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "another object": lambda content: b'{"key": 1}',
    "no object": lambda content: b"[1]",
    "nothing that is text": lambda content: b"\xff\x00",
    "another name": lambda content: re.sub(rb'"(words|files|continuation)":', rb'"x\1":', content),
    "another value": lambda content: re.sub(rb'"(rows|words|files|continuation)": .', rb'"\1": 1', content),
}


@pytest.mark.grid(1)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_kept_files_are_made_again(damage, written, options, tmp_path):
    copied = tmp_path / "report.html"
    shutil.copytree(f"{written}-files", f"{copied}-files")
    kept = sorted(Path(f"{copied}-files").iterdir())
    assert len(kept) > 7
    for path in kept:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert report(*options, "--output", copied) == 0
    assert text_of(copied) == text_of(written)


@pytest.mark.slow
def test_each_checkpoint_is_opened_once(options, lm_runs, tmp_path, monkeypatch):
    """All sections and pictures of two runs with three checkpoints each, that with the changes over the updates too."""
    files = ("checkpoint_1_2.pt", "checkpoint_1_4.pt", "checkpoint_best.pt")
    for run in ("mle", "agg"):
        (tmp_path / run).mkdir()
        for file in (*files, "train.log"):
            shutil.copy(lm_runs / run / file, tmp_path / run)
    opened, load = Counter(), torch.load

    @functools.wraps(load)
    def counted(file, *arguments, **options):
        opened[Path(file).relative_to(tmp_path)] += 1
        return load(file, *arguments, **options)

    monkeypatch.setattr(torch, "load", counted)
    assert report(tmp_path / "mle", tmp_path / "agg", *options[2:], "--output", tmp_path / "r.html") == 0
    assert anchors((tmp_path / "r.html").read_text()) == set(SECTIONS) - TRANSLATION_ONLY | ADDED
    assert opened == {Path(run, file): 1 for run in ("mle", "agg") for file in files}


@pytest.mark.slow
def test_from_python(lm_runs, lm_data, tmp_path):
    runs = {"one": lm_runs / "agg"}
    options = ReportOptions(max_texts=1, words=["w3"], datasets=[tmp_path / "none.txt"])
    found = write_report(runs, lm_data, tmp_path / "r.html", options)
    assert found.path == tmp_path / "r.html" and found.sections == len(anchors(found.path.read_text()))
    assert set(found.left_out) == {"What came out", "Translations", "Word similarity", "Similarity of aligned words"}
    (error,) = found.errors
    assert found.left_out["Word similarity"] == f"error: {error}"
    with pytest.raises(UserError, match="expected a name ending in .html"):
        write_report(runs, lm_data, tmp_path / "r.pdf")


def test_all_texts_of_a_page_are_escaped():
    bad = "<b>\"'&"
    blocks = [
        page.Paragraph(bad),
        page.Table([bad], [[bad, bad, None, bad * 10]], bad),
        page.Picture("data:,", 5.0, bad, bad),
        page.Samples(bad, [(bad, bad)]),
        page.Table([bad], [[page.Term(bad, bad, bad, bad), page.Cell(bad, bad, bad)]]),
        page.Verdict(bad, {"better": [bad]}),
        page.Glossary([page.Term(bad, bad, bad)]),
    ]
    html = page.load_template().render(title=bad, sections=[page.Section("a", bad, blocks)], footer=bad)
    assert "<b>" not in html and html.count("&lt;b&gt;") == 36 and html.count("<td>—</td>") == 1
    assert not re.search(r"""(?:alt|title)="[^"]*["']['&](?!#|amp|lt|gt)""", html)


def test_without_jinja(lm_runs, lm_data, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert report(lm_runs / "mle", "--data", lm_data, "-o", tmp_path / "r.html") == 2
    assert "jinja2 is missing; pip install '.[eval]'" in capsys.readouterr().err


@pytest.mark.slow
def test_names_are_text(lm_runs, lm_data, tmp_path):
    """A name is never taken for HTML; one run is compared with nothing."""
    path = tmp_path / "r.html"
    name = '<script>alert("1")</script>'
    texts = ["--gen-subset", "train", "--max-texts", "1"]
    assert report(lm_runs / "mle", "--data", lm_data, *texts, "--name", name, "-o", path) == 0
    html = path.read_text()
    assert html.count("<script") == 1 and "&lt;script&gt;" in html
    assert "not the same in all runs" not in html
    assert "no --datasets were given" in html and "found no rare token that is a word" in html


def test_an_error_in_a_section_does_not_cost_the_others(lm_runs, lm_data, tmp_path, capsys):
    """A file that is not there: all else is on the page, and the status is 2."""
    path = tmp_path / "r.html"
    options = ["--max-texts", "1", "--words", "w3", "--datasets", tmp_path / "none.txt"]
    assert report(lm_runs / "mle", "--data", lm_data, *options, "-o", path) == 2
    assert f"report: error: --datasets: found no file {tmp_path / 'none.txt'}" in capsys.readouterr().err
    assert {"language-model", "neighbors", "texts", "frequencies"} < anchors(path.read_text())
    assert f"error: --datasets: found no file {tmp_path / 'none.txt'}" in path.read_text()


@pytest.mark.slow
def test_a_damaged_split_costs_the_sections_that_read_it(lm_runs, lm_data, tmp_path, capsys):
    """One size too small: fairseq would read it without a word, and score other tokens."""
    data, path = tmp_path / "bin", tmp_path / "r.html"
    shutil.copytree(lm_data, data)
    index = bytearray((data / "test.idx").read_bytes())
    index[26] -= 1  # the size of the first sentence
    (data / "test.idx").write_bytes(index)
    assert report(lm_runs / "mle", "--data", data, "--max-texts", "1", "-o", path) == 2
    assert "test.idx: found sizes and beginnings of sentences that contradict each other" in capsys.readouterr().err
    assert "contradict each other" in path.read_text()
    assert {"embeddings", "frequencies"} < anchors(path.read_text())
    assert not {"language-model", "texts"} & anchors(path.read_text())


@pytest.mark.slow
def test_a_changed_data_set_is_measured_again(lm_runs, lm_data, tmp_path):
    """The cosines stay, the human scores are turned around: the correlation changes its sign."""
    pairs, path = tmp_path / "P.txt", tmp_path / "r.html"
    options = ["--data", lm_data, "--max-texts", "1", "--datasets", pairs, "-o", path]
    found = []
    for scores in ((1, 2, 3), (30, 20, 10)):
        words = (("w0", "w1"), ("w2", "w3"), ("w4", "w5"))
        lines = [f"{one}\t{other}\t{score}\n" for (one, other), score in zip(words, scores, strict=True)]
        pairs.write_text("".join(lines))
        assert report(lm_runs / "mle", *options) == 0
        found.append(float(re.search(r">P</a> ↑</th><td>(-?[\d.]+)</td>", path.read_text())[1]))
    assert found[0] == -found[1] != 0


@pytest.mark.slow
def test_other_sections_bear_what_one_cannot(lm_runs, lm_data, tmp_path, capsys):
    """An interrupted save costs the curves over the updates only; no token is rare by frequency, which costs none."""
    run, path = tmp_path / "-run", tmp_path / "r.html"
    shutil.copytree(lm_runs / "agg", run)
    (run / "checkpoint_1_9.pt").write_bytes((run / "checkpoint_last.pt").read_bytes()[:500])
    options = ["--data", lm_data, "--max-texts", "1", "--groups", "frequency", "-o", path]
    assert report(run, *options) == 2
    assert "checkpoint_1_9.pt: found no readable checkpoint" in capsys.readouterr().err
    assert {"rare-group", "embeddings", "language-model"} < anchors(path.read_text())
    (run / "checkpoint_1_9.pt").unlink()
    assert report(run, *options) == 0
    assert "over-updates" in anchors(path.read_text())


def test_translation_runs(translator, mt_data, tmp_path):  # noqa: F811
    """BLEU, AlignSim and translations side by side; without a log there are no curves."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(translator, tmp_path / name / "checkpoint_last.pt")
        lines = [f"S-0\t{name} w1\nT-0\tt1 t2 t3 t4 t5\nH-0\t-0.5\tt1 t2 t3 t4 {name}\nD-0\t-0.5\tt1 t2 t3 t4 {name}\n"]
        (tmp_path / f"{name}.log").write_text("".join(lines))
    sentences = len((mt_data.parent / "train.en").read_text().splitlines())
    (tmp_path / "links").write_text("0-0\n" * sentences)
    arguments = ["--translations", tmp_path / "a.log", tmp_path / "b.log", "--alignments", tmp_path / "links"]
    arguments += ["--words", "w1"]
    path = tmp_path / "r.html"
    assert report(tmp_path / "a", tmp_path / "b", "--data", mt_data, *arguments, "-o", path) == 0
    html = path.read_text()
    without_log = {"learning-curves", "over-updates", "rare-group"}
    assert anchors(html) == set(SECTIONS) - LANGUAGE_ONLY - without_log | ADDED
    assert "t1 t2 t3 t4 b" in html and "AlignSim" in html and "All settings are the same" in html


def test_refused(lm_runs, lm_data, translator, tmp_path, capsys):  # noqa: F811
    def refuses(words, *arguments):
        assert report(*arguments) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1

    data, output = ["--data", lm_data], ["-o", tmp_path / "r.html"]
    refuses("expected a name ending in .html", lm_runs / "mle", *data, "-o", tmp_path / "r.pdf")
    refuses("no such folder", tmp_path / "none", *data, *output)
    refuses("found neither checkpoint_best.pt nor", tmp_path, *data, *output)
    refuses("no such folder", lm_runs / "mle", "--data", tmp_path / "none", *output)
    (tmp_path / "mt").mkdir()
    shutil.copy(translator, tmp_path / "mt" / "checkpoint_last.pt")
    refuses("found the task translation; expected language_modeling", lm_runs / "mle", tmp_path / "mt", *data, *output)
    refuses("found 1 names for 2", lm_runs / "mle", lm_runs / "agg", "--name", "a", *data, *output)
    refuses("found the name 'a' twice", lm_runs / "mle", lm_runs / "agg", "--name", "a", "a", *data, *output)
    refuses("'human', the row", lm_runs / "mle", "--name", "human", *data, *output)
    refuses(f"found {lm_runs / 'mle'} twice", lm_runs / "mle", lm_runs / "mle", *data, *output)
    refuses("--baseline: found 'x'; expected the name of a run: mle, agg", lm_runs / "mle", lm_runs / "agg", *data,
            "--baseline", "x", *output)  # fmt: skip
    refuses("found 1 logs for 2 runs", lm_runs / "mle", lm_runs / "agg", "--translations", "x.log", *data, *output)
    assert not (tmp_path / "r.html").exists()


def test_settings_by_hand():
    """An option is shown where it comes first: the criterion's copy of the seed is none of its own."""
    first = {"cfg": {"common": {"seed": 1, "log_file": "a"}, "criterion": {"_name": "mle", "seed": 1}, "model": None}}
    second = {
        "cfg": {
            "common": {"seed": 2, "log_file": "b"},
            "criterion": {"_name": "agg", "seed": 2, "agg_alpha": 0.1, "agg_window": 0, "agg_static": False},
            "optimizer": {"adam_betas": [0.9, 0.98]},
        }
    }
    assert different_settings([first, second]) == [
        ("--seed", ["1", "2"]),
        ("--criterion", ["mle", "agg"]),
        ("--adam-betas", [None, "0.9 0.98"]),
        ("--agg-alpha", [None, "0.1"]),
    ]
    assert different_settings([first, first]) == []
    ignored = {"cfg": {"criterion": {"_name": "agg", "agg_alpha": 0.03, "agg_rare_fraction": 0.3}}}
    assert different_settings([ignored, {"cfg": {"criterion": {"_name": "agg", "agg_rare_fraction": 0.5}}}]) == [
        ("--agg-rare-fraction", ["0.3", "0.5"])
    ]
    started = [{"cfg": {"checkpoint": {"restore_file": file}}} for file in ("checkpoint_last.pt", "mle.pt")]
    assert different_settings(started) == [("--restore-file", [None, "mle.pt"])]


def test_parameters_are_counted_once(lm_runs):
    """V·D of the tied embedding, and the layers; also where the two are saved as two tensors, as from a GPU."""
    model = Checkpoint(lm_runs / "mle" / "checkpoint_last.pt").state["model"]
    tied = {"decoder.output_projection.weight", "decoder.embed_positions._float_tensor", "decoder.version"}
    expected = sum(value.numel() for name, value in model.items() if name not in tied)
    assert count_parameters(model) == expected
    assert count_parameters({name: value.clone() for name, value in model.items()}) == expected


@pytest.mark.parametrize(
    "layer",
    [
        FactorizedSoftmax(torch.tensor([0, 1, 1]), 4),
        UnigramLinear(torch.nn.Parameter(torch.zeros(3, 4)), torch.ones(3)),
    ],
    ids=["f2", "unigram"],
)
def test_classes_and_counts_of_tokens_are_no_parameters(layer):
    state = {f"decoder.output_projection.{name}": value for name, value in layer.state_dict().items()}
    assert count_parameters(state) == sum(parameter.numel() for parameter in layer.parameters())


def test_kept_results(tmp_path):
    """A cut-off file, or one of another key, is measured again."""
    cache, made = Cache(tmp_path / "kept"), []

    def measure(path: Path, *, topk: int = 1) -> Result:
        made.append(topk)
        return Result([Column("a", digits=0)], {"x": [1.0]}, "s", {"a": 1.5})

    source = tmp_path / "input"
    source.write_text("1")
    first = cache.result(measure, source, topk=3)
    assert cache.result(measure, source, topk=3).to_dict() == first.to_dict() and len(made) == 1
    source.write_text("22")
    assert cache.result(measure, source, topk=3)["x"] == {"a": 1.0} and len(made) == 2
    (path,) = (tmp_path / "kept").iterdir()
    key = json.loads(path.read_text())["key"]
    for content in ("{", "[]", json.dumps({"key": key}), json.dumps({"key": key, "result": {"rows": 1}})):
        path.write_text(content)
        assert cache.result(measure, source, topk=3).signature == "s"
    assert len(made) == 6
    with pytest.raises(UserError, match="No such file"):
        cache.result(measure, tmp_path / "none")


def test_a_kept_file_never_bears_the_key_of_another(tmp_path, monkeypatch):
    """Interrupted between the file and its key, it is written again for either key."""

    def write(text: str, output: Path) -> None:
        output.write_text(f"of {text}")

    def interrupt(path, value):
        raise KeyboardInterrupt

    cache = Cache(tmp_path)
    cache.file("t", write, "a")
    with monkeypatch.context() as patch:
        patch.setattr("agg_fairseq.evaluation.cache.write_json", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cache.file("t", write, "b")
    assert cache.file("t", write, "a").read_text() == "of a"


@pytest.mark.slow
def test_help_without_matplotlib():
    """Read before anything is installed."""
    program = "import sys; sys.modules['matplotlib'] = None\n"
    program += "from agg_fairseq.cli.main import main; main(['report', '--help'])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0 and "--max-texts" in result.stdout
