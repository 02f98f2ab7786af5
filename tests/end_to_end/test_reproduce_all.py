"""scripts/reproduce.sh: every table and figure at --scale tiny, with models of a few updates on real text."""

import os

import pytest

from scripts.experiments.entries import EXPERIMENTS
from tests.reproducing import LM, MT, reproduce, rows

AWD = (
    "optimization.max_epoch=1", "optimization.max_update=6", "model.decoder_embed_dim=8", "model.decoder_hidden_size=8",
)  # fmt: skip
UPDATES = ("optimization.max_update=12",)
LINES = {"train": 4000, "valid": 100, "test": 50}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("all")


@pytest.fixture(scope="module")
def pairs(shared_data, tmp_path_factory):
    """The beginning of Multi30k: enough for a dictionary that has the ranks of AGPS."""
    folder = tmp_path_factory.mktemp("pairs")
    for split, lines in LINES.items():
        for language in ("en", "de"):
            text = (shared_data / "multi30k" / f"{split}.{language}").read_text(encoding="utf-8").splitlines()
            (folder / f"{split}.{language}").write_text("\n".join(text[:lines]) + "\n", encoding="utf-8")
    return folder


def options(key, pairs):
    corpora = {model.corpus.name for model in EXPERIMENTS[key].models()}
    if any(model.corpus.parallel for model in EXPERIMENTS[key].models()):
        return ("--data", pairs, *MT, *UPDATES)
    return AWD if "wikitext2-words" in corpora else (*LM, *UPDATES)


@pytest.mark.parametrize("key", EXPERIMENTS)
def test_every_table_and_figure(key, output, pairs, shared_data, monkeypatch):
    monkeypatch.setenv("AGG_DATA", str(shared_data))  # for the pairs of words
    printed = reproduce(key, "--scale", "tiny", "--output", output, *options(key, pairs), timeout=1800)
    experiment = EXPERIMENTS[key]
    table = rows(printed.stdout)
    names = {text for text in (*table, *table.get("", ()))}
    if experiment.measures:
        assert {method.label for method in experiment.methods} <= names
        assert {measure.label for measure in experiment.measures} <= names
    pictures = [line for line in printed.stdout.splitlines() if line.endswith(".png")]
    assert len(pictures) == len(experiment.pictures) and all(os.path.getsize(path) > 1000 for path in pictures)
