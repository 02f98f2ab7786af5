"""Every picture of `agg-fairseq plot`, of real runs: what is in it, and what is refused."""

import json
import math
import sys
import warnings

import pytest
import torch

from agg_fairseq.cli.main import main
from agg_fairseq.cli.plot import PICTURES
from tests.commands import read_result, refused, run
from tests.conftest import write_lines


def drawn(picture, *paths):
    figure = PICTURES[picture][0]({str(path): read_result(path) for path in paths})
    figure.draw_without_rendering()
    return figure


@pytest.fixture(scope="session")
def eval_json(lm_runs, lm_data, tmp_path_factory):
    """Results of eval-lm for both runs, and for a third with another rare fraction (the same
    weights)."""
    path = tmp_path_factory.mktemp("eval") / "eval.json"
    checkpoints = [lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")]
    arguments = ["eval-lm", *checkpoints, "--data", lm_data, "--json", path]
    assert main([str(argument) for argument in arguments]) == 0
    mle, agg, *others = json.loads(path.read_text())["rows"]
    other = agg | {"name": "agg-0.6", "criterion": agg["criterion"] | {"agg_rare_fraction": 0.6}}
    return changed(path, path, "rows", [mle, agg, other, *others])


@pytest.fixture(scope="session")
def texts_json(lm_data, tmp_path_factory):
    """Results of text-metrics for texts of two models, and of three with 2, 4 and 10 classes of
    either kind."""
    folder = tmp_path_factory.mktemp("texts")
    names = ["mle", "f2"]
    for kind in ("equal-frequency", "equal-token"):
        names += [f"f2-{kind}-10", f"f2-{kind}-2", f"f2-{kind}-4"]
    texts = [folder / f"{name}.jsonl" for name in names]
    for number, path in enumerate(texts):
        lines = []
        for text in range(3):
            line = {"prefix": "w0", "continuation": f"w0 w1 {'w0 ' * number}w{text}"}
            lines.append(json.dumps(line | {"reference": f"w3 w0 w1 w{text}"}))
        write_lines(path, lines)
    arguments = ["text-metrics", *texts, "--data", lm_data, "--json", folder / "metrics.json"]
    assert main([str(argument) for argument in arguments]) == 0
    return folder / "metrics.json"


@pytest.fixture
def inputs(lm_runs, lm_data, eval_json, texts_json):
    runs, data = [lm_runs / "mle", lm_runs / "agg"], ["--data", lm_data]
    checkpoints = [run / "checkpoint_last.pt" for run in runs]
    logs = [run / "train.log" for run in runs]
    words = ["--words", "w0", "w5"]
    sweep = ["mle", "AGG", "perplexity, total", "Uniq, rare", "rare fraction"]
    classes = ["equal-token", "mle", "human", "MS-Jaccard-2 × 100", "KLD in nats", "classes"]
    return {
        "projection": ([*checkpoints, *data], ["mle", "agg", "frequent", "medium", "rare"]),
        "singular-values": (checkpoints, ["mle", "agg", "index"]),
        "isotropy": ([*runs, *data], ["mle", "agg", "I(W) rare", "cosine of rare and frequent"]),
        "inner-products": ([*runs, *data], ["mle", "agg", "rare", "mean inner product"]),
        "rare-tokens": (logs[1:], ["agg", "updates"]),
        "learning-curves": (logs, ["mle", "agg", "training", "valid", "perplexity"]),
        "alpha-sweep": ([eval_json], sweep),
        "similarity": ([*checkpoints, *data, *words], ["w0, mle", "w5, agg", "frequency rank"]),
        "frequencies": ([lm_data], ["bin", "rank", "occurrences"]),
        "token-shares": ([texts_json], ["f2", "human", "frequent", "very rare"]),
        "class-sweep": ([texts_json], classes),
    }


@pytest.mark.grid(4)
@pytest.mark.parametrize("picture", PICTURES)
def test_every_picture_is_drawn(picture, inputs, tmp_path, capsys):
    """Its words are in the SVG; drawn again it is the same file."""
    svg, (arguments, words) = tmp_path / "a.svg", inputs[picture]
    run(capsys, "plot", picture, *arguments, "-o", svg)
    first = svg.read_bytes()
    assert [word for word in words if f"<!-- {word} -->" not in first.decode()] == []
    run(capsys, "plot", picture, *arguments, "-o", svg)
    assert svg.read_bytes() == first


def test_plot_refuses(lm_runs, lm_data, eval_json, texts_json, tmp_path, capsys, monkeypatch):
    checkpoint, log = lm_runs / "mle" / "checkpoint_last.pt", lm_runs / "mle" / "train.log"
    rows = json.loads(texts_json.read_text())["rows"]
    two = changed(eval_json, tmp_path / "two.json", "rows", 1, "criterion", {"agg_alpha": 0.1})
    schema = changed(eval_json, tmp_path / "schema.json", "schema", 0)
    plain = changed(texts_json, tmp_path / "plain.json", "columns", "token_share", [])
    named = changed(texts_json, tmp_path / "named.json", "rows", rows[:2])
    empty = changed(texts_json, tmp_path / "empty.json", "rows", [])
    no_shares = "found no frequent (%); expected what agg-fairseq text-metrics --data DATA wrote"
    words_of = ("similarity", checkpoint, "--data", lm_data, "--words", "unheard")
    for words, *arguments in (
        ("no token 'unheard'", *words_of),
        ("found no rare_tokens", "rare-tokens", log),
        ("two.json: found agg_alpha and agg_rare_fraction", "alpha-sweep", two),
        ("schema.json: found the schema 0; expected 2; expected what", "alpha-sweep", schema),
        (no_shares, "token-shares", plain),
        (no_shares, "token-shares", empty),
        ("found no PPL total; expected what agg-fairseq eval-lm wrote", "alpha-sweep", texts_json),
        ("found no row named …equal-frequency-N or …equal-token-N", "class-sweep", named),
    ):
        assert words in refused(capsys, "plot", *arguments, "-o", tmp_path / "x.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = refused(capsys, "plot", "singular-values", checkpoint, "-o", tmp_path / "x.svg")
    assert "found no matplotlib, which this command needs; pip install" in error
    assert not (tmp_path / "x.svg").exists()


@pytest.mark.grid(2)
@pytest.mark.parametrize("picture", ["isotropy", "inner-products", "projection", "similarity"])
def test_empty_groups_and_names_that_look_like_markup(
    picture, inputs, tmp_path, capsys, monkeypatch
):
    """No token is rarer than 1e-5: what needs such tokens is not defined, and not in the legend."""
    counting = "agg_fairseq.data.vocabulary.count_split"
    monkeypatch.setattr(counting, lambda data, known, *_: torch.ones(len(known)).long())
    names, svg = ("lr$\\frac$", "_mle"), tmp_path / "a.svg"
    options = ("--groups", "frequency", "--name", *names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(capsys, "plot", picture, *inputs[picture][0], *options, "-o", svg)
    text = svg.read_text()
    assert text.count("<!-- not defined -->") == (2 if picture == "isotropy" else 0)
    assert ("<!-- frequent -->" in text) == (picture != "isotropy")
    assert "<!-- rare -->" not in text and "<!-- medium -->" not in text
    for name in names:
        assert f"<!-- {'w0, ' * (picture == 'similarity')}{name} -->" in text


def changed(path, target, *keys_and_value):
    """A copy of a file of measures in which another value is at the end of some keys."""
    whole = part = json.loads(path.read_text())
    *keys, last, value = keys_and_value
    for key in keys:
        part = part[key]
    part[last] = value
    target.write_text(json.dumps(whole))
    return target


def test_token_shares_of_several_files(texts_json, tmp_path, capsys):
    mle, *_, human = json.loads(texts_json.read_text())["rows"]
    one = changed(texts_json, tmp_path / "one.json", "rows", [mle, human])
    other = changed(one, tmp_path / "other.json", "rows", 0, "name", "other")
    figure = drawn("token-shares", one, other)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["mle", "other", "human"]
    changed(one, other, "rows", 1, "token_share", "rare", 0.9)
    error = refused(capsys, "plot", "token-shares", one, other, "-o", tmp_path / "x.svg")
    assert "other.json: found other numbers in the row 'human' than in another file" in error
    without_human = changed(texts_json, other, "rows", [mle])
    assert len(drawn("token-shares", without_human).axes[0].containers) == 1


def test_seeds_of_the_sweep_are_one_point(eval_json, tmp_path):
    """Draws their mean; what is not defined is a gap."""
    total = json.loads(eval_json.read_text())["rows"][1]["perplexity"]["total"]
    path = changed(eval_json, tmp_path / "seed.json", "rows", 1, "perplexity", "total", total + 2)
    changed(path, path, "rows", 1, "name", "agg-2")
    curve = drawn("alpha-sweep", eval_json, path).axes[0].lines[0]
    assert curve.get_ydata()[0] == pytest.approx(total + 1)
    changed(eval_json, path, "rows", 1, "unique_predictions", "rare", None)
    gap = drawn("alpha-sweep", path).axes[4].lines[0]
    assert [math.isnan(y) for y in gap.get_ydata()] == [True, False]


def test_class_sweep(texts_json, eval_json, tmp_path):
    """In each panel a curve for each kind of classes, over their number, and lines of other rows;
    with results of eval-lm, a panel of their perplexities in place of the KLD."""
    rows = {row["name"]: row for row in json.loads(texts_json.read_text())["rows"]}
    paths = []
    for name, row in rows.items():
        paths.append(changed(texts_json, tmp_path / f"{name}.json", "rows", [row]))
    axes = drawn("class-sweep", *paths, texts_json).axes
    of_panel = {0: lambda row: 100 * row["ms_jaccard"]["2"], 2: lambda row: row["kld"]}
    for panel, value in of_panel.items():
        *curves, mle, f2 = axes[panel].lines
        for kind, curve in zip(("equal-frequency", "equal-token"), curves, strict=True):
            expected = [value(rows[f"f2-{kind}-{number}"]) for number in (2, 4, 10)]
            assert (list(curve.get_xdata()), list(curve.get_ydata())) == ([2, 4, 10], expected)
        assert [mle.get_ydata()[0], f2.get_ydata()[0]] == [value(rows["mle"]), value(rows["f2"])]
    *_, human = axes[1].lines  # which has a Self-BLEU alone
    assert human.get_ydata()[0] == 100 * rows.pop("human")["self_bleu"]["2"]
    assert len({line.get_marker() for line in axes[1].lines}) == 5

    row, *_ = json.loads(eval_json.read_text())["rows"]
    scored = []
    for number, name in enumerate(rows):
        scored.append(row | {"name": name, "perplexity": {"total": float(number)}})
    path = changed(eval_json, tmp_path / "ppl.json", "rows", scored)
    *_, axis = drawn("class-sweep", texts_json, path).axes
    assert axis.get_title() == "perplexity" and list(axis.lines[0].get_ydata()) == [3, 4, 2]
    assert [line.get_ydata()[0] for line in axis.lines[2:4]] == [0, 1]
