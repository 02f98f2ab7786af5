"""Every picture of `agg-fairseq plot`, of real runs: what is in it, and what is refused."""

import math
import sys
import warnings

import pytest
import torch

from agg_fairseq import plots
from agg_fairseq.cli.plot import PICTURES
from agg_fairseq.errors import UserError
from agg_fairseq.fairseq_plugin.models import from_checkpoint
from agg_fairseq.result import Result
from tests.commands import refused, run, write_texts


@pytest.fixture(scope="session")
def eval_json(lm_runs, lm_data, tmp_path_factory):
    path = tmp_path_factory.mktemp("eval") / "eval.json"
    run("eval-lm", lm_runs / "mle", lm_runs / "agg", "--data", lm_data, "--json", path)
    return path


@pytest.fixture(scope="session")
def texts_json(lm_data, tmp_path_factory):
    """Results of text-metrics for texts of two models, and of two with fixed classes."""
    folder, paths = tmp_path_factory.mktemp("texts"), []
    for number, name in enumerate(("mle", "f2", "f2-equal-frequency-2", "f2-equal-token-4")):
        continuations = [f"w0 w1 {'w0 ' * number}w{text}" for text in range(3)]
        references = [f"w3 w0 w1 w{text}" for text in range(3)]
        paths.append(write_texts(folder / f"{name}.jsonl", continuations, references))
    run("text-metrics", "--data", lm_data, "--json", folder / "metrics.json", *paths)
    return folder / "metrics.json"


@pytest.fixture
def inputs(lm_runs, lm_data, eval_json, texts_json):
    """The arguments of each picture, and words in it."""
    runs, data = [lm_runs / "mle", lm_runs / "agg"], ["--data", lm_data]
    logs, words = [run / "train.log" for run in runs], ["--words w0 w5"]
    return {
        "projection": ([*runs, *data], ["mle", "agg", "frequent", "medium", "rare"]),
        "singular-values": (runs, ["mle", "agg", "index"]),
        "isotropy": ([*runs, *data], ["agg", "I(W) rare", "cosine, rare and frequent"]),
        "inner-products": ([*runs, *data], ["agg", "rare", "mean inner product"]),
        "rare-tokens": (logs[1:], ["agg", "updates"]),
        "learning-curves": (logs, ["mle", "agg", "training", "valid", "perplexity"]),
        "alpha-sweep": ([eval_json], ["mle", "AGG", "Uniq, rare", "rare fraction"]),
        "similarity": ([*runs, *data, *words], ["w0, mle", "w5, agg", "frequency rank"]),
        "frequencies": ([lm_data], ["bin", "rank", "occurrences"]),
        "token-shares": ([texts_json], ["f2", "human", "frequent", "very rare"]),
        "class-sweep": ([texts_json], ["equal-token", "human", "KLD in nats", "classes"]),
    }


@pytest.mark.grid(4)
@pytest.mark.parametrize("picture", PICTURES)
def test_every_picture_is_drawn(picture, inputs, tmp_path):
    (arguments, words), drawn = inputs[picture], []
    for name in ("a.svg", "b.svg"):
        run("plot", picture, *arguments, "-o", tmp_path / name)
        drawn.append((tmp_path / name).read_text())
    assert drawn[0] == drawn[1]
    for word in words:
        assert f"<!-- {word} -->" in drawn[0]


@pytest.mark.parametrize("picture", ["isotropy", "projection"])
def test_empty_groups_and_names_like_markup(picture, inputs, tmp_path, monkeypatch):
    """No token that occurs is rarer than 1e-5: what needs such tokens is not defined, and not in
    the legend. Those that never occur, half of them, are."""
    counts = lambda task, *_: torch.arange(len(task.dictionary)) % 2  # noqa: E731
    monkeypatch.setattr(from_checkpoint, "training_counts", counts)
    names, svg = ("lr$\\frac$", "_mle"), tmp_path / "a.svg"
    options = ("--groups frequency --name", *names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run("plot", picture, *inputs[picture][0], *options, "-o", svg)
    text = svg.read_text()
    assert text.count("<!-- not defined -->") == (2 if picture == "isotropy" else 0)
    assert ("<!-- frequent -->" in text) == (picture != "isotropy")
    assert "<!-- rare -->" not in text and "<!-- medium -->" not in text
    assert f"<!-- {'I(W) ' * (picture == 'isotropy')}unseen -->" in text
    assert all(f"<!-- {name} -->" in text for name in names)


def test_plot_refuses(lm_runs, lm_data, tmp_path, monkeypatch):
    checkpoint, log = lm_runs / "mle" / "checkpoint_last.pt", lm_runs / "mle" / "train.log"
    output = ("-o", tmp_path / "x.svg")
    for *arguments, words in (
        ("similarity", checkpoint, "--data", lm_data, "--words unheard", "no token 'unheard'"),
        ("rare-tokens", log, "found no rare_tokens"),
    ):
        assert words in refused("plot", *arguments, *output)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = "found no matplotlib, which this command needs"
    assert words in refused("plot", "singular-values", checkpoint, *output)
    assert not (tmp_path / "x.svg").exists()


def scored(*models):
    """A result with name, options of the criterion, and perplexity of models."""
    rows = {}
    for name, criterion, perplexity in models:
        values = {"total": perplexity, "rare": 1.0}
        measures = dict.fromkeys(("perplexity", "unique_predictions", "isotropy"), values)
        rows[name] = {"criterion": criterion, **measures}
    return Result(rows, dict.fromkeys(measures, ["total", "rare"]), {})


def test_seeds_of_the_sweep_are_one_point():
    small, large = {"agg_rare_fraction": 0.3}, {"agg_rare_fraction": 0.6}
    result = scored(
        ("mle", {}, 9.0), ("agg", small, 10.0), ("agg-2", small, 12.0), ("x", large, None)
    )
    draw = plots.alpha_sweep
    curve, level = draw({"eval.json": result}).axes[0].lines
    assert list(curve.get_xdata()) == [0.3, 0.6] and level.get_ydata()[0] == 9
    mean, gap = curve.get_ydata()
    assert mean == 11 and math.isnan(gap)
    two = scored(("agg", small, 10.0), ("other", {"agg_alpha": 0.1}, 10.0))
    with pytest.raises(UserError, match="two.json: found agg_alpha and agg_rare_fraction"):
        draw({"two.json": two})
