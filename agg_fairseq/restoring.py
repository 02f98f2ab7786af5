"""Which checkpoint fairseq-train will start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LAST = "checkpoint_last.pt"


def restored_checkpoint(options: Any) -> Path | None:
    """The file that fairseq restores or fine-tunes from, None where there is none on this machine's disks.

    Args:
        options: with `save_dir` and `restore_file`, and `finetune_from_model` where that matters.
    """
    path = Path(options.save_dir) / LAST if options.restore_file == LAST else Path(options.restore_file)
    tuned = getattr(options, "finetune_from_model", None)
    if tuned and not path.is_file():
        path = Path(tuned)
    return path if path.is_file() else None
