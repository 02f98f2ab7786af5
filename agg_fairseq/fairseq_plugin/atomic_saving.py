"""Checkpoints that are written atomically.

fairseq copies a checkpoint onto `checkpoint_best.pt` and `checkpoint_last.pt` in place: a training
that is killed during the copy cannot be resumed. Here copies are made beside their place, as
`checkpoint_last.pt.tmp`, and renamed when their contents have reached the disk.
"""

import os
import shutil

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager


def write_checkpoints_atomically() -> None:
    """Makes fairseq write checkpoints atomically from now on."""
    checkpoint_utils.PathManager = AtomicPathManager


class AtomicPathManager(PathManager):
    """fairseq's `PathManager`, but local files are replaced atomically."""

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        """Copies a file, also onto the target of a link."""
        if not PathManager.supports_rename(src_path) or not PathManager.supports_rename(dst_path):
            return PathManager.copy(src_path, dst_path, overwrite=overwrite)
        target = os.path.realpath(dst_path)
        shutil.copyfile(src_path, f"{target}.tmp")
        AtomicPathManager.rename(f"{target}.tmp", target)
        return True

    @staticmethod
    def rename(src: str, dst: str) -> None:
        """Renames a file once its contents are on the disk, lest a power failure lose them."""
        with open(src, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(src, dst)
