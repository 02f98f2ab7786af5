"""Results kept in a folder: an evaluation is made again only where its function, its options or a file has changed."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..checkpoints.opening import EmbeddingSource
from ..errors import UserError, first_line
from ..files import write_json, write_whole
from ..result import Result

DATA_ENDINGS = (".bin", ".idx", ".txt")
"""Of the files in a folder of fairseq-preprocess."""
REVISION = 5
"""Of what the evaluations return. To be raised if one returns other columns or details, or measures them in another
way, so that results of the same version of the package that were kept before are made again."""


class Cache:
    """A folder of results.

    A result depends on the version of the package and `REVISION`, the function, all its arguments, and the files among
    them, by size and time of change. Models and a `pathlib.Path` are files or folders that are read; so is a `str` that
    names one, for a parameter whose annotation mentions `Path`. A damaged entry is made again, after a line about it on
    standard error.

    Args:
        folder: is made when something is kept.

    Example:
        >>> cache = Cache("results")  # doctest: +SKIP
        >>> cache.result(perplexity, checkpoints, Path("data-bin"), split="valid")  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def result(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """What the function returns for these arguments: kept, or evaluated now and kept.

        Raises:
            UserError: a file is missing, the entry cannot be read; or as the function.
        """
        identity, key = _identity_and_key(function, arguments, options)
        path = self.folder / f"{function.__name__}-{identity}.json"
        kept = _read(path)
        if kept.get("key") == key:
            try:
                if kept.get("digest") != _digest(json.dumps(kept.get("result")).encode()):
                    raise ValueError("found another digest")
                return Result.from_dict(kept.get("result"))
            except ValueError as error:  # damaged, or of a version in development
                _say_damaged(path, error)
        result = function(*arguments, **options).to_dict()
        entry = {"key": key, "digest": _digest(json.dumps(result).encode()), "result": result}
        text = json.dumps(entry, ensure_ascii=False)
        write_whole(path, lambda temporary: temporary.write_text(text, "utf-8", "backslashreplace"))
        return Result.from_dict(json.loads(text)["result"])  # as it will be read the next time

    def file(self, name: str, function: Callable[..., Result], *arguments: Any, **options: Any) -> Path:
        """A file that the function writes, as its last positional argument says: kept, or written now.

        Args:
            name: of the file in the folder.
            function: that writes it.
            arguments: of the function, without the path of the file.
            options: of the function.

        Raises:
            UserError: as `result`.
        """
        path, key_path = self.folder / name, self.folder / f"{name}.key.json"
        key = _identity_and_key(function, (*arguments, _Output(name)), options)[1]
        kept = _read(key_path)
        is_kept = kept.get("key") == key and path.is_file()
        if is_kept and kept.get("digest") != _digest(path.read_bytes()):
            _say_damaged(path, ValueError("found another digest"))
            is_kept = False
        if not is_kept:
            key_path.unlink(missing_ok=True)  # first: the old key is not that of the new file
            function(*arguments, path, **options)
            write_json(key_path, {"key": key, "digest": _digest(path.read_bytes())})
        return path


@dataclasses.dataclass(frozen=True)
class _Output:
    """The name of a file that is written: no file to be read, even where there is one of that name."""

    name: str


def _identity_and_key(
    function: Callable[..., Result], arguments: Sequence[Any], options: Mapping[str, Any]
) -> tuple[str, Any]:
    """What tells one entry from another, in short; and all that an entry depends on, as JSON says it."""
    signature = inspect.signature(function)
    bound = signature.bind(*arguments, **options)
    bound.apply_defaults()
    files: list[Any] = []
    values = {}
    for name, value in bound.arguments.items():
        takes_paths = "Path" in str(signature.parameters[name].annotation)
        values[name] = _as_json(value, files, takes_paths=takes_paths)
    name = f"{function.__module__}.{function.__qualname__}"
    identity = hashlib.sha256(json.dumps([name, values]).encode()).hexdigest()[:16]
    return identity, json.loads(json.dumps([__version__, REVISION, name, values, files]))


def _as_json(value: Any, files: list[Any], *, takes_paths: bool) -> Any:
    """An argument as plain values; the fingerprints of the files that it names are added to `files`."""
    if isinstance(value, str) and takes_paths and os.path.exists(value):
        value = Path(value)
    if isinstance(value, EmbeddingSource):
        files.append(value.fingerprint)  # of what was read, whatever lies there by now
        return str(value.path.resolve())
    if isinstance(value, Path):
        inside = sorted(one for one in value.iterdir() if one.suffix in DATA_ENDINGS) if value.is_dir() else [value]
        files += map(_fingerprint, inside)
        return str(value.resolve())
    if isinstance(value, _Output):
        return value.name
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: _as_json(getattr(value, field.name), files, takes_paths=False) for field in fields}
    if isinstance(value, Mapping):  # as pairs, since the order of rows matters
        return [[str(key), _as_json(item, files, takes_paths=takes_paths)] for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [_as_json(item, files, takes_paths=takes_paths) for item in value]
    return value


def _digest(content: bytes) -> str:
    """Tells an entry as it was written from a damaged one."""
    return hashlib.sha256(content).hexdigest()


def _fingerprint(path: Path) -> list[Any]:
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; expected a file to be measured") from error
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def _read(path: Path) -> dict[str, Any]:
    """A file of JSON; empty where there is none yet, or where it is damaged, which is said.

    Raises:
        UserError: it is there and cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"found a {type(found).__name__}")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; expected a kept result that can be read and replaced; remove it"
        ) from error
    except (ValueError, RecursionError) as error:
        _say_damaged(path, error)
        return {}
    return found


def _say_damaged(path: Path, error: Exception) -> None:
    """One line on standard error: what follows takes as long as the first time."""
    print(f"{path}: damaged ({first_line(error)}); it is made again", file=sys.stderr)
