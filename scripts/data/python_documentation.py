"""Writes the demo's text: the documentation that is bundled with every Python.

These are the language reference in `pydoc_data.topics` and the docstrings of the standard library.
They are cleaned and split by document into train, valid and test.

    python -m scripts.data.python_documentation FOLDER
"""

from __future__ import annotations

import ast
import pydoc_data.topics
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from ..command import run

SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"}
HELD_OUT = {0: "valid", 1: "test"}  # of every 20 documents
MIN_WORDS = 4


def documents() -> Iterator[list[str]]:
    """Paragraphs of each document: a topic of the language reference, or the docstrings of a
    module."""
    for _, text in sorted(pydoc_data.topics.topics.items()):
        yield paragraphs(text)
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if not SKIPPED_FOLDERS & set(path.relative_to(root).parts):
            yield [paragraph for text in docstrings(path) for paragraph in paragraphs(text)]


def docstrings(path: Path) -> Iterator[str]:
    """All docstrings of a source file; none if it is a template, or Python of another version."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield text


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text that are not code, each on one line and without mark-up."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        prose = re.sub(r"\s+", " ", block).strip()
        prose = re.sub(r"[`*]|:[a-z]+:(?=`)|={3,}|-{3,}|\.\. ", "", prose).strip()
        if not _looks_like_code(block) and len(re.findall(r"[A-Za-z]{2,}", prose)) >= MIN_WORDS:
            found.append(prose)
    return found


def _looks_like_code(block: str) -> bool:
    """Whether a block is a doctest, a grammar rule, an indented statement, or mostly symbols."""
    letters = sum(character.isalpha() or character.isspace() for character in block)
    statement = re.match(
        r"\s{3,}(if|for|while|def|class|with|try|import|from|return|raise)\b.*[:)]\s*$", block, re.M
    )
    return ">>>" in block or "::=" in block or statement is not None or letters < 0.75 * len(block)


def split(everything: Iterator[list[str]]) -> dict[str, list[str]]:
    """Paragraphs by split, each once. A document is in one split as a whole."""
    splits: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    seen: set[str] = set()
    for number, document in enumerate(filter(None, everything)):
        fresh = [paragraph for paragraph in dict.fromkeys(document) if paragraph not in seen]
        seen.update(fresh)
        splits[HELD_OUT.get(number % 20, "train")] += fresh
    return splits


def main() -> None:
    """Writes train, valid and test into a folder."""
    for name, lines in split(documents()).items():
        Path(sys.argv[1], name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run("python_documentation", main))
