"""Logs of fairseq-train: both forms of a line, and what was trained twice."""

import pytest

from agg_fairseq.errors import UserError
from agg_fairseq.evaluation.fairseq_logs import read_log


def test_log_is_read_in_both_forms(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        '{"epoch": 1, "update": 0.5, "loss": "3.5", "rare_tokens": "7", "isotropy": null, "num_updates": "10"}\n'
        '2026-01-01 | INFO | train_inner | {"epoch": 1, "loss": "3.0", "num_updates": "20"}\n'
        '{"epoch": 1, "valid_loss": "2.0", "valid_num_updates": "20"}\n'
        '{"epoch": 1, "train_loss": "2.5", "train_num_updates": "20"}\n'
        "done training in 3 seconds\n"
        '{"epoch": 1, "update": 0.7, "lo'
    )
    inner = read_log(log)
    assert [(entry["num_updates"], entry["loss"]) for entry in inner] == [(10, 3.5), (20, 3.0)]
    assert inner[0]["rare_tokens"] == 7 and "isotropy" not in inner[0]
    assert read_log(log, "valid")[0]["loss"] == 2.0 and read_log(log, "train")[0]["loss"] == 2.5
    with pytest.raises(UserError, match="found no 'valid1' lines"):
        read_log(log, "valid1")
    with pytest.raises(UserError, match="No such file"):
        read_log(tmp_path / "none")


def test_what_is_trained_again_replaces_what_was(tmp_path):
    """A run that was resumed from update 15 with another --log-interval, and one that began anew in the same file."""
    log = tmp_path / "train.log"
    numbers = ((10, 9), (20, 8), (30, 7), (18, 8.5), (25, 7.5))
    lines = [f'{{"epoch": 1, "loss": "{loss}", "num_updates": "{update}"}}' for update, loss in numbers]
    log.write_text("\n".join(lines))
    assert [(entry["num_updates"], entry["loss"]) for entry in read_log(log)] == [(10, 9), (18, 8.5), (25, 7.5)]
    log.write_text("\n".join([*lines, lines[0]]))
    assert [entry["num_updates"] for entry in read_log(log)] == [10]
