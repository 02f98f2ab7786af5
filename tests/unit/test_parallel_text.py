"""The stages of a parallel corpus, as functions: with either library, and with different numbers of processes."""

import sys

import pytest

from scripts.data.parallel_source import given
from scripts.data.parallel_text import Preparation
from scripts.data.stages import stage


def prepared_text(source, output, workers):
    """The folder of sub-words."""
    preparation = Preparation(source, output, merges=300, workers=workers)
    for name, (_, make) in preparation.stages().items():
        if name != "data-bin":
            stage(output / name, preparation.settings(), make)
    return {path.name: path.read_text(encoding="utf-8") for path in (output / "text").iterdir()}


@pytest.fixture(scope="module")
def source(shared_data, tmp_path_factory):
    """2,500 pairs to train on, more than a process is handed at a time."""
    folder = tmp_path_factory.mktemp("source")
    for split, count in {"train": 2500, "valid": 30, "test": 30}.items():
        for language in ("en", "de"):
            lines = (shared_data / "multi30k" / f"{split}.{language}").read_text(encoding="utf-8").split("\n")[:count]
            (folder / f"{split}.{language}").write_text("\n".join(lines), encoding="utf-8")
    return given(folder)


@pytest.fixture(scope="module")
def by_fastbpe(source, tmp_path_factory):
    return prepared_text(source, tmp_path_factory.mktemp("fastbpe"), 1)


def test_number_of_processes_makes_no_difference(source, by_fastbpe, tmp_path):
    assert prepared_text(source, tmp_path, 3) == by_fastbpe


def test_without_fastbpe(source, by_fastbpe, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastBPE", None)
    assert prepared_text(source, tmp_path, 2) == by_fastbpe


def test_only_the_training_part_is_cleaned(by_fastbpe):
    """Both sides of it are as long; validation and test are as long as they were."""
    counts = {name: text.count("\n") for name, text in by_fastbpe.items() if name != "settings.json"}
    assert counts["train.en"] == counts["train.de"] < 2500
    assert [counts[f"{split}.{language}"] for split in ("valid", "test") for language in ("en", "de")] == [30] * 4
