"""Checkpoints that appear whole or not at all.

fairseq writes a checkpoint beside its place (`checkpoint_1_100.pt.tmp`) and renames it, but then copies it onto
`checkpoint_best.pt` and `checkpoint_last.pt` in place: a training that is killed during the copy leaves a truncated
`checkpoint_last.pt`, and cannot be resumed. Once a criterion of this package trains, and saves,
`fairseq.checkpoint_utils` of its process uses a `PathManager` that also copies beside the place and renames, and that
renames only files whose contents have reached the disk. The copy needs the disk space of one more checkpoint, and each
file the time until the disk has it.

The temporary files keep fairseq's ending, which none of its patterns of checkpoint names matches. The next training in
the folder removes what a killed one has left. A file that is being written is locked, and is not removed. Paths that
are not on a local file system are passed through unchanged, and so are asynchronous writes, which fairseq leaves to
iopath.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from .distributed import is_first_worker

ENDING = ".tmp"
"""Of unfinished files, as fairseq names them."""
LEFT_OVER = re.compile(r"checkpoint[\w.-]*\.pt" + re.escape(ENDING))


def write_checkpoints_whole(save_dir: str | Path) -> None:
    """Makes fairseq save whole files from now on, and removes what a killed training has left in its folder.

    Args:
        save_dir: the folder of the training's checkpoints; it need not exist.
    """
    checkpoint_utils.PathManager = WholePathManager
    folder = Path(save_dir)
    if not is_first_worker() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if not LEFT_OVER.fullmatch(path.name) or not path.is_file() or path.is_symlink():
            continue
        with contextlib.suppress(OSError), path.open("rb+") as file:  # it was finished just now, or is another user's
            if _lock(file):
                path.unlink(missing_ok=True)


class WholePathManager(PathManager):
    """fairseq's `PathManager`, but local files appear whole."""

    @staticmethod
    def open(path: str, mode: str = "r", **options: Any) -> Any:
        """Opens a file as fairseq's `PathManager` does.

        An unfinished checkpoint is locked as long as it is open; and removed if it cannot be finished, since it would
        keep a full disk full.
        """
        if not str(path).endswith(ENDING) or "w" not in mode or not PathManager.supports_rename(path):
            return PathManager.open(path, mode, **options)
        return _unfinished(path, mode, **options)

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        """Copies a file, also onto the target of a link; the old file stays until the new one is complete."""
        if not PathManager.supports_rename(src_path) or not PathManager.supports_rename(dst_path):
            return PathManager.copy(src_path, dst_path, overwrite=overwrite)
        place = os.path.realpath(dst_path)
        with _unfinished(place + ENDING, "ab"):
            shutil.copyfile(src_path, place + ENDING)
            WholePathManager.rename(place + ENDING, place)
        return True

    @staticmethod
    def rename(src: str, dst: str) -> None:
        """Renames a file once its contents are on the disk: else a power failure may leave the name without them."""
        with open(src, "rb+") as file:
            _lock(file)
            os.fsync(file.fileno())
            os.replace(src, dst)


@contextlib.contextmanager
def _unfinished(path: str, mode: str, **options: Any) -> Iterator[Any]:
    """An open file, locked in the meantime; it is removed if an error ends its use."""
    try:
        with PathManager.open(path, mode, **options) as file:
            _lock(file)
            yield file
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise


def _lock(file: Any) -> bool:
    """Locks the file until it is closed or its process ends; False if another process has it, or locks are missing."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
