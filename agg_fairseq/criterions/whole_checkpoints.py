"""Checkpoints that appear whole or not at all, whatever ends the process that writes them.

fairseq writes a checkpoint beside its place (`checkpoint_1_100.pt.tmp`) and renames it, but then copies it onto
`checkpoint_best.pt` and `checkpoint_last.pt` in place: a training that is killed there leaves a truncated
`checkpoint_last.pt`, and cannot go on. So while a criterion of this package trains, `fairseq.checkpoint_utils` sees a
`PathManager` that copies beside the place and renames too, and that renames only what has reached the disk. That takes
the room of one more checkpoint while it copies.

The temporary files keep fairseq's ending, which none of its patterns of checkpoints matches; the next training in the
folder removes what a killed one has left of them. Importing the package changes nothing; paths that are not of a local
file system go through as before, and so do asynchronous writes, which fairseq leaves to iopath.
"""

import os
import re
import shutil
from pathlib import Path

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from ..workers import is_first_worker

ENDING = ".tmp"  # fairseq's own
LEFT_OVER = re.compile(r"checkpoint[\w.-]*\.pt" + re.escape(ENDING))


class WholePathManager(PathManager):
    """fairseq's `PathManager`, whose local files appear whole."""

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        """As fairseq's; the old file stays until the new one is complete."""
        if not PathManager.supports_rename(src_path) or not PathManager.supports_rename(dst_path):
            return PathManager.copy(src_path, dst_path, overwrite=overwrite)
        shutil.copyfile(src_path, dst_path + ENDING)
        WholePathManager.rename(dst_path + ENDING, dst_path)
        return True

    @staticmethod
    def rename(src: str, dst: str) -> None:
        """As fairseq's, after the contents are on the disk: else a power failure may leave the name without them."""
        with open(src, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(src, dst)


def write_checkpoints_whole(save_dir: str | Path) -> None:
    """From here on, what fairseq saves appears whole; removes what a killed training has left in its folder.

    Args:
        save_dir: the folder of the training's checkpoints; it need not exist.
    """
    checkpoint_utils.PathManager = WholePathManager
    folder = Path(save_dir)
    if is_first_worker() and folder.is_dir():
        for path in folder.iterdir():
            if LEFT_OVER.fullmatch(path.name):
                path.unlink()
