"""scripts/reproduce.sh: tables and figures at --scale tiny that together have every feature, on real text."""

import os
from dataclasses import replace

import pytest

from scripts.experiments import corpora
from scripts.experiments.entries import EXPERIMENTS
from tests.reproducing import LM, MT, head_of, reproduce

pytestmark = pytest.mark.slow

AWD = (
    "optimization.max_epoch=1", "optimization.max_update=6", "model.decoder_embed_dim=8", "model.decoder_hidden_size=8",
)  # fmt: skip
SHORTER = {"agg-figure-5": (0, 1, 5), "f2-figure-3": (0, 1, 2, 3, 6, 7)}
"""Of the longest sweeps, the methods that are left."""
LINES = {"train": 4000, "valid": 30, "test": 40}


def features(key):
    """What an entry can go wrong in: evaluations, columns, pictures, configurations, and how models are made."""
    experiment = EXPERIMENTS[key]
    for column in experiment.columns:
        evaluate = getattr(column.read, "keywords", {}).get("evaluate", column.read)
        yield (getattr(evaluate, "func", evaluate).__name__, *getattr(evaluate, "keywords", {}))
    yield from ((picture.name, picture.draw.__qualname__) for picture in experiment.pictures)
    yield from ["samples"] if experiment.samples else []
    for method in experiment.methods:
        yield from (name for name in ("human", "decoding", "greedy", "cache") if getattr(method, name))
    for model in experiment.models():
        if "tiny" in model.scales:
            yield (model.config, *(override.partition("=")[0] for override in model.overrides))
            yield from (name for name in ("start", "convert", "corpus_only") if getattr(model, name))


def chosen(kind):
    """Entries that together have every feature of those of a kind: again and again, the one with most that are new."""
    of = {key: set(features(key)) for key in EXPERIMENTS if kind_of(EXPERIMENTS[key].models()[0]) == kind}
    left, keys = set().union(*of.values()), []
    while left:
        keys.append(max(of, key=lambda key: len(of[key] & left)))
        left -= of[keys[-1]]
    return keys


def kind_of(model):
    """What the options that make a model small depend on."""
    if model.corpus.parallel:
        return "translation"
    return "until" if model.config.endswith("freeze-until") else "lstm" if "wikitext2/" in model.config else "language"


@pytest.fixture(scope="module")
def wikitext(shared_data, tmp_path_factory):
    names = [f"wiki.{split}.tokens" for split in LINES]
    return head_of(shared_data / "wikitext-2", tmp_path_factory.mktemp("raw") / "two words", names, LINES)


@pytest.fixture(scope="module")
def pairs(shared_data, tmp_path_factory):
    """The beginning of Multi30k: enough for a dictionary that has the ranks of AGPS."""
    names = [f"{split}.{language}" for split in LINES for language in ("en", "de")]
    lines = {**LINES, "test": 4}  # an untrained model does not end its translations
    return head_of(shared_data / "multi30k", tmp_path_factory.mktemp("raw") / "pairs, é", names, lines)


def check(printed, keys):
    lines = printed.stdout.splitlines()
    cells = {cell.strip() for line in lines if line.startswith("|") for cell in line.split("|")}
    drawn = [line for line in lines if line.endswith(".png")]
    for key in keys:
        experiment = EXPERIMENTS[key]
        assert experiment.title in printed.stdout
        pictures = [path for path in drawn if os.path.basename(path).startswith(f"{key}-")]
        assert len(pictures) == len(experiment.pictures) and all(os.path.getsize(path) > 1000 for path in pictures)
        if experiment.columns:
            assert {one.label for one in (*experiment.methods, *experiment.columns)} <= cells, key


def test_language_models(wikitext, shared_data, tmp_path, monkeypatch):
    monkeypatch.setenv("AGG_DATA", str(shared_data))  # for the pairs of words
    monkeypatch.setattr(corpora, "VOCABULARY", 2000)
    for key, places in SHORTER.items():
        methods = [EXPERIMENTS[key].methods[place] for place in places]
        monkeypatch.setitem(EXPERIMENTS, key, replace(EXPERIMENTS[key], methods=methods))
    half = ("optimization.max_update=20", "++criterion.freeze_until=10")
    for kind, overrides in {"language": LM, "until": (*LM, *half), "lstm": AWD}.items():
        options = ("--scale", "tiny", "--data", wikitext, "--output", tmp_path / kind)
        check(reproduce(*chosen(kind), *options, *overrides), chosen(kind))


def test_translation_models(pairs, tmp_path):
    keys = chosen("translation")
    printed = reproduce(
        *keys, "--scale", "tiny", "--data", pairs.name, "--output", tmp_path / "ü", *MT, cwd=pairs.parent
    )
    check(printed, keys)
    assert "not run" in printed.stdout and "quoted" in printed.stdout and "version:2" in printed.stdout
    assert (tmp_path / "ü" / "agg-base-agg" / "averaged.pt").is_file()
