"""Which checkpoint fairseq-train will start from: what `checkpoint_utils.load_checkpoint` decides, decided before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LAST = "checkpoint_last.pt"


def restored_checkpoint(options: Any) -> Path | None:
    """The file that fairseq restores or fine-tunes from, None where there is none on this machine's disks.

    Args:
        options: with `save_dir` and `restore_file`, and `checkpoint_suffix`, `continue_once` and `finetune_from_model`
            where those matter.
    """
    path = _named(options)
    if options.restore_file == LAST and not path.is_file():
        path = Path(_given(options, "continue_once") or _given(options, "finetune_from_model") or path)
    return path if path.is_file() else None


def fine_tunes(options: Any) -> bool:
    """Does fairseq take the weights of --finetune-from-model, and nothing else?

    Args:
        options: as of `restored_checkpoint`.
    """
    is_first = options.restore_file == LAST and not _named(options).is_file()
    return is_first and not _given(options, "continue_once") and bool(_given(options, "finetune_from_model"))


def _named(options: Any) -> Path:
    """By --restore-file; a suffix goes into the name before each `.pt`, as fairseq puts it."""
    suffix = _given(options, "checkpoint_suffix") or ""
    if options.restore_file == LAST:
        return Path(options.save_dir) / f"checkpoint_last{suffix}.pt"
    return Path(options.restore_file.replace(".pt", f"{suffix}.pt"))


def _given(options: Any, name: str) -> str | None:
    return getattr(options, name, None)
