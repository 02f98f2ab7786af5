"""Every picture of `agg-fairseq plot`, of real runs: what is in it, and what is refused."""

import functools
import json
import math
import operator
import shutil
import sys
import warnings

import pytest
import torch

from agg_fairseq.cli.main import main
from agg_fairseq.cli.plot import PICTURES
from agg_fairseq.files import write_json
from agg_fairseq.result import Result
from tests.commands import read_result, refused, run


def drawn(picture, *paths):
    figure = PICTURES[picture][0]({str(path): read_result(path) for path in paths})
    figure.draw_without_rendering()
    return figure


@pytest.fixture(scope="session")
def eval_json(lm_runs, lm_data, tmp_path_factory):
    """What eval-lm says of both runs, and of a third with another rare fraction (the same
    weights)."""
    path = tmp_path_factory.mktemp("eval") / "eval.json"
    checkpoints = [lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")]
    assert (
        main(["eval-lm", *map(str, checkpoints), "--data", str(lm_data), "--json", str(path)]) == 0
    )
    mle, agg, *others = json.loads(path.read_text())["rows"]
    other = agg | {"name": "agg-0.6", "criterion": agg["criterion"] | {"agg_rare_fraction": 0.6}}
    return changed(path, path, ("rows", [mle, agg, other, *others]))


@pytest.fixture(scope="session")
def texts_json(lm_data, tmp_path_factory):
    """What text-metrics says of texts of two models, and of three with 2, 4 and 10 classes of
    either kind."""
    folder = tmp_path_factory.mktemp("texts")
    names = [
        "mle",
        "f2",
        *(f"f2-{kind}-{n}" for kind in ("equal-frequency", "equal-token") for n in (10, 2, 4)),
    ]
    texts = [folder / f"{name}.jsonl" for name in names]
    for number, path in enumerate(texts):
        lines = [
            {
                "prefix": "w0",
                "continuation": f"w0 w1 {'w0 ' * number}w{text}",
                "reference": f"w3 w0 w1 w{text}",
            }
            for text in range(3)
        ]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    arguments = ["text-metrics", *texts, "--data", lm_data, "--json", folder / "metrics.json"]
    assert main([str(argument) for argument in arguments]) == 0
    return folder / "metrics.json"


@pytest.fixture
def inputs(lm_runs, lm_data, eval_json, texts_json):
    """For each picture the arguments, and words that are in it."""
    runs = [lm_runs / "mle", lm_runs / "agg"]
    checkpoints, logs = (
        [run / file for run in runs] for file in ("checkpoint_last.pt", "train.log")
    )
    data = ["--data", lm_data]
    return {
        "projection": ([*checkpoints, *data], ["mle", "agg", "frequent", "medium", "rare"]),
        "singular-values": (checkpoints, ["mle", "agg", "index"]),
        "isotropy": ([*runs, *data], ["mle", "agg", "I(W) rare", "cosine of rare and frequent"]),
        "inner-products": ([*runs, *data], ["mle", "agg", "rare", "mean inner product"]),
        "rare-tokens": (logs[1:], ["agg", "updates"]),
        "learning-curves": (logs, ["mle", "agg", "training", "valid", "perplexity"]),
        "alpha-sweep": (
            [eval_json],
            ["mle", "AGG", "perplexity, total", "Uniq, rare", "rare fraction"],
        ),
        "similarity": (
            [*checkpoints, *data, "--words", "w0", "w5"],
            ["w0, mle", "w5, agg", "frequency rank"],
        ),
        "frequencies": ([lm_data], ["bin", "rank", "occurrences"]),
        "token-shares": ([texts_json], ["f2", "human", "frequent", "very rare"]),
        "class-sweep": (
            [texts_json],
            ["equal-token", "mle", "human", "MS-Jaccard-2 × 100", "KLD in nats", "classes"],
        ),
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


def test_plot_refuses(lm_runs, lm_data, eval_json, tmp_path, capsys, monkeypatch):
    checkpoint, log = lm_runs / "mle" / "checkpoint_last.pt", lm_runs / "mle" / "train.log"
    two = changed(eval_json, tmp_path / "two.json", ("rows", 1, "criterion", {"agg_alpha": 0.1}))
    schema = changed(eval_json, tmp_path / "schema.json", ("schema", 0))
    for words, *arguments in (
        ("no token 'unheard'", "similarity", checkpoint, "--data", lm_data, "--words", "unheard"),
        ("found no rare_tokens", "rare-tokens", log),
        ("two.json: found agg_alpha and agg_rare_fraction", "alpha-sweep", two),
        (
            "schema.json: found the schema 0; expected 2; expected what a command of agg-",
            "alpha-sweep",
            schema,
        ),
    ):
        assert words in refused(capsys, "plot", *arguments, "-o", tmp_path / "x.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = refused(capsys, "plot", "singular-values", checkpoint, "-o", tmp_path / "x.svg")
    assert "found no matplotlib, which this command needs; pip install" in error
    assert not (tmp_path / "x.svg").exists()


def test_a_picture_names_the_columns_and_the_command_that_it_needs(
    eval_json, texts_json, tmp_path, capsys
):
    """Of the results of other commands, of texts without --data, and of default names."""
    rows = json.loads(texts_json.read_text())["rows"]
    plain = changed(texts_json, tmp_path / "plain.json", ("columns", "token_share", []))
    named = changed(texts_json, tmp_path / "named.json", ("rows", rows[:2]))
    other = tmp_path / "other.json"
    write_json(other, Result({"a": {"kld": 1.0}}, {"kld": [""]}, {}).json())
    empty = changed(texts_json, tmp_path / "empty.json", ("rows", []))
    for picture, path, words in (
        (
            "token-shares",
            eval_json,
            "found no frequent (%); expected what agg-fairseq text-metrics --data",
        ),
        (
            "token-shares",
            plain,
            "found no frequent (%); expected what agg-fairseq text-metrics --data",
        ),
        ("token-shares", empty, "found no frequent (%)"),
        ("class-sweep", eval_json, "found no row named …equal-frequency-N or …equal-token-N"),
        ("class-sweep", named, "found no row named …equal-frequency-N or …equal-token-N"),
        ("alpha-sweep", texts_json, "found no PPL total; expected what agg-fairseq eval-lm wrote"),
        *(
            (name, other, "other.json: found no ")
            for name in ("token-shares", "class-sweep", "alpha-sweep")
        ),
    ):
        assert words in refused(capsys, "plot", picture, path, "-o", tmp_path / "x.svg")
    assert len(drawn("token-shares", named).axes[0].containers) == 2, "without human texts"


@pytest.mark.grid(2)
@pytest.mark.parametrize("picture", ["isotropy", "inner-products", "projection", "similarity"])
def test_empty_groups_and_names_that_look_like_markup(
    picture, inputs, tmp_path, capsys, monkeypatch
):
    """No token is rarer than 1e-5: what needs such tokens is not defined, and not in the legend."""
    monkeypatch.setattr(
        "agg_fairseq.data.vocabulary.count_split",
        lambda data, known, *_: torch.ones(len(known)).long(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names = ("--name", "lr$\\frac$", "_mle")
        run(
            capsys, "plot", picture, *inputs[picture][0], "--groups", "frequency", *names, "-o",
            tmp_path / "a.svg",
        )  # fmt: skip
    text = (tmp_path / "a.svg").read_text()
    assert text.count("<!-- not defined -->") == (2 if picture == "isotropy" else 0)
    assert ("<!-- frequent -->" in text) == (picture != "isotropy")
    assert "<!-- rare -->" not in text and "<!-- medium -->" not in text
    for name in names[1:]:
        assert f"<!-- {'w0, ' * (picture == 'similarity')}{name} -->" in text


def changed(path, target, *changes):
    """A copy of a file of measures in which something else is at the end of some keys."""
    value = json.loads(path.read_text())
    for *keys, last, found in changes:
        functools.reduce(operator.getitem, keys, value)[last] = found
    target.write_text(json.dumps(value))
    return target


def test_token_shares_of_several_files(texts_json, tmp_path, capsys):
    """A name has the same numbers in all of them: the human texts are the same, and names of models
    differ."""
    mle, *_, human = json.loads(texts_json.read_text())["rows"]
    one = changed(texts_json, tmp_path / "one.json", ("rows", [mle, human]))
    other = changed(one, tmp_path / "other.json", ("rows", 0, "name", "other"))
    figure = drawn("token-shares", one, other, shutil.copy(one, tmp_path / "again.json"))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["mle", "other", "human"]
    changed(one, other, ("rows", 1, "token_share", "rare", 0.9))
    error = refused(capsys, "plot", "token-shares", one, other, "-o", tmp_path / "x.svg")
    assert "other.json: found other numbers in the row 'human' than in another file" in error


def test_seeds_of_the_sweep_are_one_point(eval_json, tmp_path):
    """Their mean; and what is not defined is a gap."""
    total = json.loads(eval_json.read_text())["rows"][1]["perplexity"]["total"]
    changes = ("rows", 1, "perplexity", "total", total + 2), ("rows", 1, "name", "agg-2")
    path = changed(eval_json, tmp_path / "seed.json", *changes)
    curve = drawn("alpha-sweep", eval_json, path).axes[0].lines[0]
    assert curve.get_ydata()[0] == pytest.approx(total + 1)
    gap = drawn(
        "alpha-sweep", changed(eval_json, path, ("rows", 1, "unique_predictions", "rare", None))
    )
    assert [math.isnan(y) for y in gap.axes[4].lines[0].get_ydata()] == [True, False]


def test_class_sweep_with_perplexity(texts_json, eval_json, tmp_path):
    """That of eval-lm, by the names of the rows; the human text has none."""
    names = [row["name"] for row in json.loads(texts_json.read_text())["rows"]]
    row, *_ = json.loads(eval_json.read_text())["rows"]
    rows = [
        row | {"name": name, "perplexity": {"total": float(number)}}
        for number, name in enumerate(names[:-1])
    ]
    path = changed(eval_json, tmp_path / "ppl.json", ("rows", rows))
    *_, axis = drawn("class-sweep", texts_json, path).axes
    assert axis.get_title() == "perplexity" and list(axis.lines[0].get_ydata()) == [3, 4, 2]
    assert [line.get_ydata()[0] for line in axis.lines[2:4]] == [0, 1]


def test_class_sweep_of_several_files(texts_json, tmp_path):
    """Each panel has its measure, by number of classes, of either kind; a file for each row, and
    all of them again."""
    rows = {row["name"]: row for row in json.loads(texts_json.read_text())["rows"]}
    human = rows.pop("human")
    paths = [
        changed(texts_json, tmp_path / f"{name}.json", ("rows", [row, human]))
        for name, row in rows.items()
    ]
    figure = drawn("class-sweep", *paths, texts_json)
    of_row = [
        lambda row: 100 * row["ms_jaccard"]["2"],
        lambda row: 100 * row["self_bleu"]["2"],
        lambda row: row["kld"],
    ]
    for axis, read in zip(figure.axes, of_row, strict=True):
        *curves, mle, f2 = axis.lines[:4]
        for kind, curve in zip(("equal-frequency", "equal-token"), curves, strict=True):
            assert list(curve.get_xdata()) == [2, 4, 10]
            assert list(curve.get_ydata()) == [
                read(rows[f"f2-{kind}-{number}"]) for number in (2, 4, 10)
            ]
        assert [level.get_ydata()[0] for level in (mle, f2)] == [
            read(rows["mle"]),
            read(rows["f2"]),
        ]
    lines = figure.axes[1].lines
    assert [len(axis.lines) for axis in figure.axes] == [4, 5, 4]
    assert len({line.get_marker() for line in lines}) == 5
    assert lines[4].get_ydata()[0] == 100 * human["self_bleu"]["2"]
