"""Results stored in a folder: an evaluation runs again only if its function, its options or a file has changed."""

import contextlib
import dataclasses
import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

from .. import __version__
from ..checkpoints.opening import EmbeddingSource
from ..errors import UserError
from ..files import atomic_write, fingerprint, read_json_object, write_json
from ..result import Result

DATA_ENDINGS = (".bin", ".idx", ".txt")  # of the files in a folder of fairseq-preprocess
REVISION = 12
"""Revision of the stored results. Raise it if an evaluation returns other values or measures them in another way, so
that results that the same version of the package stored before are not used."""


class Cache:
    """A folder of results.

    A result depends on the version of the package and `REVISION`, the function, all its arguments, and the files among
    them, by size and time of change. Files are models, each `Path`, and each `str` of a parameter or field whose type
    has `Path` in it, such as `str | Path`. An entry that cannot be read is made again.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def result(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """What the function returns for these arguments: read from the folder, or evaluated now and stored."""
        key = _key(function, inspect.signature(function).bind(*arguments, **options))
        # One entry for each question; a changed file or version has another answer, which replaces the old one.
        question = hashlib.sha256(json.dumps(key["question"]).encode()).hexdigest()[:16]
        path = self.folder / f"{function.__name__}-{question}.json"
        with contextlib.suppress(UserError, ValueError):  # missing or damaged: it is evaluated again
            entry = read_json_object(path, "a result")
            if entry.get("key") == key:
                return Result.from_json(entry.get("result"))
        text = json.dumps({"key": key, "result": function(*arguments, **options).json()}, ensure_ascii=False)
        atomic_write(path, lambda temporary: temporary.write_text(text, "utf-8", "backslashreplace"))
        return Result.from_json(json.loads(text)["result"])  # as it will be read the next time

    def file(self, name: str, function: Callable[..., Result], *arguments: Any, **options: Any) -> Path:
        """The file `name` that the function writes, whose last positional argument is its path: stored or new."""
        path, key_path = self.folder / name, self.folder / f"{name}.key.json"
        key = _key(function, inspect.signature(function).bind(*arguments, None, **options))
        with contextlib.suppress(UserError, OSError):  # missing or damaged: it is written again
            # The size, since a file that was cut off is the damage that happens.
            if read_json_object(key_path, "a key") == {"key": key, "size": path.stat().st_size}:
                return path
        key_path.unlink(missing_ok=True)  # first: the old key is not that of the new file
        function(*arguments, path, **options)
        write_json(key_path, {"key": key, "size": path.stat().st_size})
        return path


def _key(function: Callable[..., Result], bound: inspect.BoundArguments) -> dict[str, Any]:
    """The function and its arguments as JSON has them, and all else that the result depends on: version and files."""
    bound.apply_defaults()
    files: list[Any] = []
    types = get_type_hints(inspect.unwrap(function))
    values = {name: _as_json(value, types.get(name), files) for name, value in bound.arguments.items()}
    question = [f"{function.__module__}.{function.__qualname__}", values]
    return json.loads(json.dumps({"version": [__version__, REVISION], "question": question, "files": files}))


def _as_json(value: Any, declared: Any, files: list[Any]) -> Any:
    """An argument of a declared type as plain values; the fingerprints of the files that it names go to `files`."""
    if isinstance(value, EmbeddingSource):
        files.append(value.fingerprint)  # of what was read, whatever lies there by now
        return str(value.path.resolve())
    if isinstance(value, Path) or (isinstance(value, str) and _has_path(declared)):
        path = Path(value)
        in_folder = sorted(file for file in path.iterdir() if file.suffix in DATA_ENDINGS) if path.is_dir() else [path]
        files.extend(map(fingerprint, in_folder))
        return str(path.resolve())
    if dataclasses.is_dataclass(value):
        types = get_type_hints(type(value))
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _as_json(getattr(value, name), types[name], files) for name in names}
    if isinstance(value, Mapping):  # as pairs, since the order of rows matters
        return [[str(key), _as_json(item, declared, files)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_as_json(item, declared, files) for item in value]
    return value


def _has_path(declared: Any) -> bool:
    """Whether a type is `Path` or has it among its parts, as `Sequence[str | Path]` has."""
    return declared is Path or any(map(_has_path, get_args(declared)))
