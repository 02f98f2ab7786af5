"""Which model a folder holds: a model of other settings is never measured in place of the one that is asked for."""

import json

import pytest

from agg_fairseq.errors import UserError
from scripts.experiments import agg, cosreg, training
from scripts.experiments.experiment import Corpus, Model, Workspace
from scripts.experiments.training import check_settings, overrides_of, settings_of

MODEL = Model("m", "cures/mle", Corpus("c", ("p",), "words"), ("optimization.max_update=1",))


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    class Prepared:
        identity = "sha"

    monkeypatch.setattr(training, "prepare", lambda workspace, corpus: Prepared)
    return lambda *overrides, scale="tiny": Workspace(scale, tmp_path, overrides=overrides)


def hold(workspace, model, settings, left="done"):
    """Makes the folder of a model that was trained with these settings."""
    workspace.folder(model).mkdir(exist_ok=True)
    (workspace.folder(model) / "settings.json").write_text(json.dumps(settings))
    if left:
        (workspace.folder(model) / left).touch()


@pytest.mark.parametrize("left", ["checkpoint_last.pt", "done"])
def test_other_settings_are_refused_while_anything_of_the_training_is_left(workspace, left):
    settings = settings_of(workspace(), MODEL)
    hold(workspace(), MODEL, settings, left=None)
    check_settings(workspace("optimization.max_update=2"), MODEL)  # nothing was trained yet
    hold(workspace(), MODEL, settings, left)
    check_settings(workspace(), MODEL)
    for override in ("optimization.max_update=2", "common.seed=2"):
        with pytest.raises(UserError, match=r"holds a model of other settings \(overrides: "):
            check_settings(workspace(override), MODEL)
    hold(workspace(), MODEL, {**settings, "corpus": "another"}, left)
    with pytest.raises(UserError, match=r"holds a model of other settings \(corpus: another\)"):
        check_settings(workspace(), MODEL)


def test_of_two_values_the_last_one_counts(workspace):
    """As for fairseq-hydra-train."""
    asked = workspace("optimization.lr=[2]", "optimization.lr=[1]")
    assert settings_of(asked, MODEL) == settings_of(workspace("optimization.lr=[1]"), MODEL)


def test_sizes_and_their_order(workspace):
    """Where a folder of configurations has no size of the scale's name, the paper's is small enough."""
    assert overrides_of(workspace("x=1", scale="small"), agg.STATIC) == ["size=small", *agg.STATIC.overrides, "x=1"]
    assert overrides_of(workspace(scale="paper"), agg.STATIC)[0] == "size=agg"
    assert [overrides_of(workspace(scale=scale), cosreg.AWD) for scale in ("small", "paper")] == [[], []]
