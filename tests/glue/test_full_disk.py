"""A disk that is full while a command writes: one line, the old file, and nothing left behind."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from agg_fairseq.checkpoints.averaging import average_checkpoints
from agg_fairseq.checkpoints.fairseq_checkpoint import open_checkpoints
from agg_fairseq.errors import UserError
from agg_fairseq.files import write_whole
from agg_fairseq.plots.style import save
from tests.hostile import on_a_full_disk

ROOM = 4_000
"""Bytes that fit on the disk."""


def picture(path):
    figure = Figure()
    figure.subplots().plot(np.random.default_rng(0).random(3000))
    save(figure, path, "pdf")


WRITERS = {
    "text": lambda path: path.write_text("x" * 10 * ROOM),
    "checkpoint": lambda path: torch.save({"a": torch.zeros(ROOM)}, path),
    "PDF": picture,
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_cannot_be_written_is_one_line(name, tmp_path):
    target = tmp_path / "file"
    target.write_text("old")
    with on_a_full_disk(ROOM), pytest.raises(UserError, match=f"^cannot write {target}: [^\n]*; name a file[^\n]*$"):
        write_whole(target, WRITERS[name])
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


@pytest.mark.slow
def test_average_checkpoints(lm_runs, tmp_path):
    paths = sorted((lm_runs / "mle").glob("checkpoint_*_*.pt"))[:2]
    with on_a_full_disk(ROOM), pytest.raises(UserError, match="mean.pt: .*; name a file"):
        average_checkpoints(open_checkpoints(paths), tmp_path / "mean.pt")
    assert not list(tmp_path.iterdir())
