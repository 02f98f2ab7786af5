"""Checkpoints that are written atomically.

fairseq writes a checkpoint beside its place (`checkpoint_1_100.pt.tmp`) and renames it, but then copies it onto
`checkpoint_best.pt` and `checkpoint_last.pt` in place: a training that is killed during the copy leaves a truncated
`checkpoint_last.pt`, and cannot be resumed. Here copies are made beside their place, too, and a file is renamed only
when its contents have reached the disk. The temporary files have fairseq's ending, which none of its patterns matches.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

ENDING = ".tmp"  # of unfinished files, as fairseq names them


def write_checkpoints_atomically() -> None:
    """Makes fairseq write checkpoints atomically from now on."""
    checkpoint_utils.PathManager = AtomicPathManager


class AtomicPathManager(PathManager):
    """fairseq's `PathManager`, but local files are replaced atomically; other paths are passed through unchanged."""

    @staticmethod
    def open(path: str, mode: str = "r", **options: Any) -> Any:
        """Opens a file as fairseq's `PathManager` does; what it cannot finish of a checkpoint is removed."""
        file = PathManager.open(path, mode, **options)
        is_checkpoint = str(path).endswith(ENDING) and "w" in mode and PathManager.supports_rename(path)
        return _removed_if_unfinished(path, file) if is_checkpoint else file

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        """Copies a file, also onto the target of a link; the old file stays until the new one is complete."""
        if not PathManager.supports_rename(src_path) or not PathManager.supports_rename(dst_path):
            return PathManager.copy(src_path, dst_path, overwrite=overwrite)
        target = os.path.realpath(dst_path)
        with _removed_if_unfinished(target + ENDING):
            shutil.copyfile(src_path, target + ENDING)
            AtomicPathManager.rename(target + ENDING, target)
        return True

    @staticmethod
    def rename(src: str, dst: str) -> None:
        """Renames a file once its contents are on the disk: else a power failure may leave the name without them."""
        with open(src, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(src, dst)


@contextlib.contextmanager
def _removed_if_unfinished(path: str, file: Any = None) -> Iterator[Any]:
    """Closes the file at the end; removes it if an error ends its use, since it would keep a full disk full."""
    try:
        with file or contextlib.nullcontext():
            yield file
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise
