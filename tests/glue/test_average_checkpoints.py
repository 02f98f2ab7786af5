"""The `average-checkpoints` command, on checkpoints as fairseq's trainer saves them."""

import shutil

import pytest
import torch
from fairseq.trainer import Trainer
from torch.testing import assert_close

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from tests.commands import changed, diverge, refused, run, table
from tests.small_trainings import TIED, build


@pytest.fixture(scope="module")
def trained(lm_runs, tmp_path_factory):
    """A folder as fairseq-train leaves it: copies of three checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    names = {2: "8 11 _best", 4: "9 _8_90", 6: "10 _9_100 _last"}
    for updates, copies in names.items():
        for name in copies.split():
            source = lm_runs / "agg" / f"checkpoint_1_{updates}.pt"
            shutil.copy(source, folder / f"checkpoint{name}.pt")
    return folder


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("--last 5 --by epoch", "11 10 9 8"),
        ("--last 2 --by update", "_9_100 _8_90"),
        ("", "_best 9 _last"),
    ],
)
def test_last_of_a_run_and_checkpoints_by_name(trained, tmp_path, caplog, options, names):
    paths = [trained / f"checkpoint{name}.pt" for name in names.split()]
    inputs, output = (trained, options) if options else paths, tmp_path / "new" / "average.pt"
    _, rows = table(printed := run("average-checkpoints", *inputs, "--output", output))
    assert f"\ncheckpoints:{len(paths)}|mean:float64|" in printed
    assert ("found 4 checkpoints by epoch of the last 5" in caplog.text) == ("5" in options)
    first, *others = map(Checkpoint, paths)
    assert rows[0][:2] == [str(paths[0]), str(first.updates)] and len(rows) == len(paths)
    found = Checkpoint(output)
    assert found.updates == first.updates
    for name, value in found.parameters.items():
        total = sum((other.parameters[name] for other in others), first.parameters[name])
        assert_close(value, total / len(paths))


def test_what_else_is_in_the_checkpoint(trained, lm_data, tmp_path):
    """All of the newest but what only that run could go on from; fairseq loads it as --restore-file
    does, for another criterion."""
    newest = torch.load(trained / "checkpoint11.pt", weights_only=True)
    # else this test shows nothing
    assert newest["extra_state"]["LanguageModelingTask"]["agg_fairseq"]
    newest["extra_state"]["ema"] = newest["model"]
    torch.save(newest, tmp_path / "checkpoint2.pt")
    inputs, path = (tmp_path / "checkpoint2.pt", trained / "checkpoint10.pt"), tmp_path / "a.pt"
    run("average-checkpoints", *inputs, "--output", path)
    trainer = Trainer(*build(lm_data, TIED))
    trainer.load_checkpoint(str(path))
    assert_close(trainer.model.state_dict(), Checkpoint(path).parameters)
    found = torch.load(path, weights_only=True)
    del newest["extra_state"]["ema"]
    newest["extra_state"]["LanguageModelingTask"] = {}
    newest["last_optimizer_state"] = None
    del newest["model"], found["model"]
    assert found == newest


def test_average_checkpoints_refuses(trained, tmp_path):
    a, b = trained / "checkpoint8.pt", trained / "checkpoint9.pt"
    new, linked, each_once = tmp_path / "new.pt", tmp_path / "l.pt", "or more, each once"
    linked.symlink_to(a)
    diverged = changed(b, tmp_path / "bad.pt", diverge)
    for *arguments, words in (
        (a, each_once),
        (a, b, a, each_once),
        (tmp_path, "found no checkpoints by epoch"),
        (a, b, "--output", linked, "found an input, which would be written over"),
        (a, b, "--output", trained / "checkpoint10.pt", "found a file; add --force to replace it"),
        (a, diverged, "bad.pt: found an infinity or NaN in decoder."),
    ):
        assert words in refused("average-checkpoints", "--output", new, *arguments)
        assert not new.exists()
