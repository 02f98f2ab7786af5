"""A disk that is full while a command writes: one line, the old file, and nothing left behind."""

import pytest
import torch
from matplotlib.figure import Figure

from agg_fairseq.errors import UserError
from agg_fairseq.files import write_whole
from agg_fairseq.plots.style import save
from tests.hostile import on_a_full_disk

ROOM = 4_000
"""Bytes that fit on the disk."""


def picture(path):
    figure = Figure()
    figure.subplots().plot(range(3000), torch.rand(3000))
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
