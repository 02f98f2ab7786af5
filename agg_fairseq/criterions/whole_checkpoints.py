"""Checkpoints that appear whole or not at all, whatever ends the process that writes them.

fairseq writes a checkpoint beside its place (`checkpoint_1_100.pt.tmp`) and renames it, but then copies it onto
`checkpoint_best.pt` and `checkpoint_last.pt` in place: a training that is killed there leaves a truncated
`checkpoint_last.pt`, and cannot go on. So once a criterion of this package starts to train, and saves, the
`fairseq.checkpoint_utils` of its process sees, from then on, a `PathManager` that copies beside the place and renames
too, and that renames only what has reached the disk. That takes the room of one more checkpoint while it copies, and
for each file the time until the disk has it.

The temporary files keep fairseq's ending, which none of its patterns of checkpoints matches; the next training in the
folder removes what a killed one has left of them. A file that is being written is locked, and stays. Importing this
module changes nothing; paths that are not of a local file system go through as before, and so do asynchronous writes,
which fairseq leaves to iopath.
"""

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

from ..workers import is_first_worker

ENDING = ".tmp"  # fairseq's own
LEFT_OVER = re.compile(r"checkpoint[\w.-]*\.pt" + re.escape(ENDING))


class WholePathManager(PathManager):
    """fairseq's `PathManager`, whose local files appear whole."""

    @staticmethod
    def open(path: str, mode: str = "r", **options: Any) -> Any:
        """As fairseq's; an unfinished file is locked as long as it is open."""
        file = PathManager.open(path, mode, **options)
        if str(path).endswith(ENDING) and "w" in mode and PathManager.supports_rename(path):
            _lock(file)
        return file

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        """As fairseq's, through a link too; the old file stays until the new one is complete."""
        if not PathManager.supports_rename(src_path) or not PathManager.supports_rename(dst_path):
            return PathManager.copy(src_path, dst_path, overwrite=overwrite)
        place = os.path.realpath(dst_path)
        with _unfinished(place + ENDING) as copy:
            shutil.copyfile(src_path, copy)
            WholePathManager.rename(copy, place)
        return True

    @staticmethod
    def rename(src: str, dst: str) -> None:
        """As fairseq's, after the contents are on the disk: else a power failure may leave the name without them."""
        with open(src, "rb+") as file:
            _lock(file)
            os.fsync(file.fileno())
            os.replace(src, dst)


@contextlib.contextmanager
def _unfinished(path: str) -> Iterator[str]:
    """A file to be written, locked within; it goes again if that fails."""
    with open(path, "ab") as file:
        _lock(file)
        try:
            yield path
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise


def _lock(file: Any) -> bool:
    """Takes the file until it is closed, or its process ends; False if another has it, or its disk knows no locks."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_checkpoints_whole(save_dir: str | Path) -> None:
    """From here on, what fairseq saves appears whole; removes what a killed training has left in its folder.

    Args:
        save_dir: the folder of the training's checkpoints; it need not exist.
    """
    checkpoint_utils.PathManager = WholePathManager
    folder = Path(save_dir)
    if is_first_worker() and folder.is_dir():
        for path in folder.iterdir():
            if LEFT_OVER.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                _remove_unless_written(path)


def _remove_unless_written(path: Path) -> None:
    try:
        file = path.open("rb+")
    except OSError:  # finished in this moment, or another user's
        return
    with file:
        if _lock(file):
            path.unlink(missing_ok=True)
