"""Which model a folder holds: a model of other settings is never measured in place of the one that is asked for."""

import json
import os
from pathlib import Path

import pytest

from agg_fairseq.errors import UserError
from scripts.experiments import training
from scripts.experiments.experiment import Corpus, Model, Workspace
from scripts.experiments.training import check_settings, is_newer, settings_of

MODEL = Model("m", "cures/mle", Corpus("c", ("p",), "words"), ("optimization.max_update=1",))


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    class Prepared:
        identity = "sha"

    monkeypatch.setattr(training, "prepare", lambda workspace, corpus: Prepared)
    (tmp_path / "m").mkdir()
    return lambda *overrides: Workspace("tiny", tmp_path, overrides=overrides)


@pytest.mark.parametrize("left", ["checkpoint_last.pt", "done"])
def test_other_settings_are_refused_while_anything_of_the_training_is_left(workspace, left):
    folder = workspace().folder(MODEL)
    (folder / "settings.json").write_text(json.dumps(settings_of(workspace(), MODEL)))
    check_settings(workspace("optimization.max_update=2"), MODEL)  # nothing was trained yet
    (folder / left).touch()
    check_settings(workspace(), MODEL)
    with pytest.raises(UserError, match="holds a model of other settings"):
        check_settings(workspace("optimization.max_update=2"), MODEL)


def test_of_two_values_the_last_one_counts(workspace):
    """As for fairseq-hydra-train."""
    one_two, two_one = (
        settings_of(workspace(f"optimization.lr=[{first}]", f"optimization.lr=[{last}]"), MODEL)
        for first, last in ((1, 2), (2, 1))
    )
    assert one_two != two_one == settings_of(workspace("optimization.lr=[1]"), MODEL)


def test_settings_with_all_values_of_an_option_are_read(workspace):
    """As they were written before."""
    asked = workspace("optimization.max_update=2")
    folder = asked.folder(MODEL)
    values = ["optimization.max_update=1", "optimization.max_update=2"]
    (folder / "settings.json").write_text(json.dumps({**settings_of(asked, MODEL), "overrides": values}))
    (folder / "done").touch()
    check_settings(asked, MODEL)
    with pytest.raises(UserError, match="holds a model of other settings"):
        check_settings(workspace("optimization.max_update=3"), MODEL)


def test_what_is_made_from_an_older_file_is_not_new(tmp_path):
    source, output = tmp_path / "source", tmp_path / "output"
    source.touch()
    assert not is_newer(Path(output), source)
    output.touch()
    assert is_newer(output, source)
    os.utime(source, (2e9, 2e9))
    assert not is_newer(output, source)
