"""The file that says that a prepared folder is complete, and what is in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from agg_fairseq.errors import UserError
from agg_fairseq.files import write_json

from .digests import sha256
from .measuring import lines
from .stages import check_same

MANIFEST = "manifest.json"


def is_complete(folder: Path, settings: Mapping[str, object]) -> bool:
    """Whether a folder was prepared to its end.

    Args:
        folder: perhaps not there.
        settings: what it is to be prepared with, as JSON can say it.

    Raises:
        UserError: it was prepared with other settings.
    """
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["settings"]
    except FileNotFoundError:
        return False
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise UserError(f"{folder / MANIFEST}: found no manifest of this script; name another folder") from error
    check_same(folder, found, settings)
    return True


def write_manifest(
    folder: Path, settings: Mapping[str, object], facts: Mapping[str, object], files: Iterable[Path]
) -> None:
    """Writes the manifest, whole or not at all.

    Args:
        folder: where all is in its place.
        settings: what it was prepared with.
        facts: about the corpus, by their names in the manifest.
        files: of the folder, of lines of text; the manifest has their numbers of lines and SHA-256.
    """
    described = {
        str(file.relative_to(folder)): {"lines": lines(file), "sha256": sha256(file)} for file in sorted(files)
    }
    write_json(folder / MANIFEST, {**facts, "settings": dict(settings), "files": described})
