"""The zip of a WikiText corpus."""

from __future__ import annotations

import errno
import lzma
import shutil
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from agg_fairseq.errors import UserError, first_line

from .binarise import SPLITS
from .wikitext_corpora import tokens_file

BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, ValueError)
"""What zipfile raises over a file that is cut off, damaged, encrypted or compressed in a way that it does not know."""


def unpack(archive: Path, folder: Path) -> None:
    """Writes the files of the three splits into a folder, and nothing else, wherever the archive would have them.

    Raises:
        UserError: the archive cannot be read, or does not have each of them once.
    """
    try:
        with zipfile.ZipFile(archive) as members:
            for split in SPLITS:
                with members.open(_member(members, tokens_file(split))) as source:
                    with open(folder / tokens_file(split), "wb") as target:
                        shutil.copyfileobj(source, target)
    except (*BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # these are of the archive's bytes
            raise
        raise UserError(
            f"{archive}: unreadable ({first_line(error)}); expected the zip of a WikiText corpus; remove it, get it "
            "anew and run it again"
        ) from error


def _member(members: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    found = [member for member in members.infolist() if PurePosixPath(member.filename).name == name]
    if len(found) != 1:
        raise UserError(
            f"{members.filename}: found {len(found)} files named {name}; expected one, as in WikiText's zip"
        )
    return found[0]
