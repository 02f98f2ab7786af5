"""Which results of evaluations are stored, and when they are made again."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from agg_fairseq.checkpoints import open_models
from agg_fairseq.evaluation import Cache, Result, isotropy


@pytest.fixture
def source(tmp_path):
    (tmp_path / "input").write_text("1")
    return tmp_path / "input"


@pytest.fixture
def measure():
    """An evaluation; `made` are the arguments of the calls."""

    def measure(path: str | Path, *, words: Sequence[str] = (), topk: int = 1) -> Result:
        measure.made.append(topk)
        return Result({"x": {"kld": 1.5}}, {"kld": [""]}, {}, {"a": [1, 2.5]})

    measure.made = []
    return measure


def test_a_result_is_made_again_where_something_changed(tmp_path, measure, source, monkeypatch):
    """A file, given by its path or as text, an option, the version or the revision; the old entry is replaced."""
    cache, made = Cache(tmp_path / "stored"), measure.made
    first = cache.result(measure, source)
    assert cache.result(measure, source) == cache.result(measure, str(source)) == first
    assert made == [1]
    cache.result(measure, source, topk=2)
    assert made == [1, 2] and len(list(cache.folder.iterdir())) == 2
    source.write_text("22")
    cache.result(measure, str(source))
    assert made == [1, 2, 1] and len(list(cache.folder.iterdir())) == 2
    for name in ("__version__", "REVISION"):
        monkeypatch.setattr(f"agg_fairseq.evaluation.cache.{name}", "9")
        cache.result(measure, source)
    assert made == [1, 2, 1, 1, 1]


def test_a_word_is_no_file(tmp_path, measure, source, monkeypatch):
    """Only what a parameter's type says is a path: a folder that is named as a word changes no result."""
    cache = Cache(tmp_path / "stored")
    monkeypatch.chdir(tmp_path)
    cache.result(measure, source, words=["runs"])
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "dict.txt").touch()
    cache.result(measure, source, words=["runs"])
    assert measure.made == [1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-9],
        lambda text: "[" * 20_000,
        lambda text: json.dumps({"key": json.loads(text)["key"], "result": {"rows": 1}}),
    ],
)
def test_a_damaged_result_is_made_again(tmp_path, measure, source, damage):
    cache = Cache(tmp_path / "stored")
    first = cache.result(measure, source)
    (path,) = cache.folder.iterdir()
    path.write_text(damage(path.read_text()))
    for _ in range(2):
        assert cache.result(measure, source) == first and measure.made == [1, 1]


def test_a_result_is_of_the_checkpoints_that_were_read(lm_runs, lm_data, tmp_path):
    """A training may replace a checkpoint that is open already; the order of the rows counts too."""
    path, cache = tmp_path / "run" / "checkpoint_last.pt", Cache(tmp_path / "stored")
    path.parent.mkdir()
    shutil.copy(lm_runs / "mle" / "checkpoint_last.pt", path)
    before = open_models([path])
    shutil.copy(lm_runs / "agg" / "checkpoint_last.pt", tmp_path / "new.pt")
    os.replace(tmp_path / "new.pt", path)
    old, new = cache.result(isotropy, before), cache.result(isotropy, open_models([path]))
    assert new.rows == isotropy(open_models([path])).rows != old.rows
    runs = open_models([lm_runs / name / "checkpoint_last.pt" for name in ("mle", "agg")])
    assert list(cache.result(isotropy, runs, lm_data).rows) == ["mle", "agg"]
    assert list(cache.result(isotropy, dict(reversed(runs.items())), lm_data).rows) == ["agg", "mle"]


def test_a_file_is_stored(tmp_path, source, monkeypatch):
    """As long as nothing changes; a file of its name in the working folder is none of its inputs."""
    made = []

    def write(path, output, *, split="test"):
        made.append(split)
        output.parent.mkdir(exist_ok=True)
        output.write_text(f"of {split}")

    cache = Cache(tmp_path / "stored")
    monkeypatch.chdir(tmp_path)
    for split in ("test", "test", "valid"):
        path = cache.file("texts", write, source, split=split)
        (tmp_path / "texts").write_text(f"another of {split}")
    assert made == ["test", "valid"] and path == cache.folder / "texts"
    for damaged in (cache.folder / "texts.key.json", path):
        damaged.write_text("damaged")
        assert cache.file("texts", write, source, split="valid").read_text() == "of valid"

    def interrupt(path, value):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # between the file and its key
        patch.setattr("agg_fairseq.evaluation.cache.write_json", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cache.file("texts", write, source, split="test")
    assert cache.file("texts", write, source, split="valid").read_text() == "of valid"
