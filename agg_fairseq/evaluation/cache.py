"""Results kept in a folder: an evaluation is made again only where its function, its options or a file has changed."""

import dataclasses
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import __version__
from ..checkpoints.opening import EmbeddingSource
from ..files import atomic_write, fingerprint, write_json
from ..result import Result

DATA_ENDINGS = (".bin", ".idx", ".txt")  # of the files in a folder of fairseq-preprocess
REVISION = 6
"""Of what the evaluations return. To be raised if one returns other columns or details, or measures them in another
way, so that results of the same version of the package that were kept before are made again."""


class Cache:
    """A folder of results.

    A result depends on the version of the package and `REVISION`, the function, all its arguments, and the files among
    them, by size and time of change: models, and paths, also a `str` that names something that exists. An entry that
    cannot be read is made again.

    Args:
        folder: is made when something is kept.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def result(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """What the function returns for these arguments: kept, or evaluated now and kept."""
        key = _key(function, inspect.signature(function).bind(*arguments, **options))
        # One entry for each question; a changed file or version has another answer, which replaces the old one.
        question = hashlib.sha256(json.dumps(key["question"]).encode()).hexdigest()[:16]
        path = self.folder / f"{function.__name__}-{question}.json"
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["key"] == key:
                return Result.from_dict(kept["result"])
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            pass  # missing or damaged: it is evaluated again
        entry = json.dumps({"key": key, "result": function(*arguments, **options).to_dict()}, ensure_ascii=False)
        atomic_write(path, lambda temporary: temporary.write_text(entry, "utf-8", "backslashreplace"))
        return Result.from_dict(json.loads(entry)["result"])  # as it will be read the next time

    def file(self, name: str, function: Callable[..., Result], *arguments: Any, **options: Any) -> Path:
        """The file `name` that the function writes, as its last positional argument says: kept, or written now."""
        path, key_path = self.folder / name, self.folder / f"{name}.key.json"
        key = _key(function, inspect.signature(function).bind(*arguments, None, **options))
        try:
            kept = json.loads(key_path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            kept = None
        # The size, since a file that was cut off is the damage that happens.
        if not path.is_file() or kept != {"key": key, "size": path.stat().st_size}:
            key_path.unlink(missing_ok=True)  # first: the old key is not that of the new file
            function(*arguments, path, **options)
            write_json(key_path, {"key": key, "size": path.stat().st_size})
        return path


def _key(function: Callable[..., Result], bound: inspect.BoundArguments) -> dict[str, Any]:
    """What is asked, as JSON says it, and all else that the answer depends on: the version, and the files."""
    bound.apply_defaults()
    files: list[Any] = []
    values = {name: _as_json(value, files) for name, value in bound.arguments.items()}
    question = [f"{function.__module__}.{function.__qualname__}", values]
    return json.loads(json.dumps({"version": [__version__, REVISION], "question": question, "files": files}))


def _as_json(value: Any, files: list[Any]) -> Any:
    """An argument as plain values; the fingerprints of the files that it names are added to `files`."""
    if isinstance(value, EmbeddingSource):
        files.append(value.fingerprint)  # of what was read, whatever lies there by now
        return str(value.path.resolve())
    if isinstance(value, Path) or (isinstance(value, str) and os.path.exists(value)):
        value = Path(value)
        for path in sorted(one for one in value.iterdir() if one.suffix in DATA_ENDINGS) if value.is_dir() else [value]:
            files.append(fingerprint(path))
        return str(value.resolve())
    if dataclasses.is_dataclass(value):
        return {field.name: _as_json(getattr(value, field.name), files) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):  # as pairs, since the order of rows matters
        return [[str(key), _as_json(item, files)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_as_json(item, files) for item in value]
    return value
