"""Prepares the demo's corpus: the documentation that is bundled with every Python.

These are the language reference in `pydoc_data.topics` and the docstrings of the standard library, which are read from
the source without importing it. They are cleaned, split by document into train, valid and test, and cut into sub-words
by sentencepiece.

    python -m scripts.data.python_documentation --output DIR
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..command import Parser, run, whole_number
from . import sentencepiece_bpe
from .files import write_lines
from .prepared_folder import SPLITS, binarize, dictionary_size, prepare_folder

VOCABULARY = 8000
WORKERS = 2
SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__"}
HELD_OUT = {0: "valid", 1: "test"}  # of every 20 documents
MIN_WORDS = 4


def documents() -> Iterator[list[str]]:
    """Paragraphs of each document: a topic of the language reference, or the docstrings of a module."""
    import pydoc_data.topics

    for _, text in sorted(pydoc_data.topics.topics.items()):
        yield paragraphs(text)
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if not SKIPPED_FOLDERS & set(path.relative_to(root).parts):
            yield [paragraph for text in docstrings(path) for paragraph in paragraphs(text)]


def docstrings(path: Path) -> Iterator[str]:
    """All docstrings of a source file; none if it is not Python of this version, such as a template."""
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
    prose = (re.sub(r"\s+", " ", block).strip() for block in re.split(r"\n\s*\n", text) if not _looks_like_code(block))
    cleaned = (re.sub(r"[`*]|:[a-z]+:(?=`)|={3,}|-{3,}|\.\. ", "", paragraph).strip() for paragraph in prose)
    return [paragraph for paragraph in cleaned if len(re.findall(r"[A-Za-z]{2,}", paragraph)) >= MIN_WORDS]


def _looks_like_code(block: str) -> bool:
    """Whether a block is a doctest, a grammar rule, an indented statement, or mostly symbols."""
    letters = sum(character.isalpha() or character.isspace() for character in block)
    statement = re.match(r"\s{3,}(if|for|while|def|class|with|try|import|from|return|raise)\b.*[:)]\s*$", block, re.M)
    return ">>>" in block or "::=" in block or statement is not None or letters < 0.75 * len(block)


def split(everything: Iterator[list[str]]) -> dict[str, list[str]]:
    """Paragraphs by split. Each document is in one split as a whole; a paragraph that was seen before is dropped."""
    splits: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    seen: set[str] = set()
    for number, document in enumerate(document for document in everything if document):
        fresh = [paragraph for paragraph in dict.fromkeys(document) if paragraph not in seen]
        seen.update(fresh)
        splits[HELD_OUT.get(number % 20, "train")] += fresh
    return splits


def prepare(output: Path, vocabulary: int) -> None:
    """Makes what is missing of a prepared folder: `text` has the splits in sub-words and the sentencepiece model."""

    def text(folder: Path) -> None:
        lines = split(documents())
        # These three are sentencepiece's own defaults.
        sentencepiece_bpe.learn(
            lines["train"], vocabulary, WORKERS, folder,
            normalization_rule_name="nmt_nfkc", character_coverage=0.9995, max_sentence_length=4192,
        )  # fmt: skip
        for name, paragraphs_of_split in lines.items():
            write_lines(folder / name, sentencepiece_bpe.encode(folder, paragraphs_of_split))

    def data_bin(folder: Path) -> None:
        binarize(output / "text", folder, WORKERS, ["--only-source"])

    def finish() -> tuple[dict[str, object], list[str]]:
        facts = {
            "corpus": "demo",
            "tokenizer": "sentencepiece",
            "bpe": {"kind": "sentencepiece", "sentencepiece_model": f"text/{sentencepiece_bpe.MODEL}"},
            "dictionary": dictionary_size(output / "data-bin" / "dict.txt"),
        }
        return facts, [f"text/{name}" for name in SPLITS]

    settings = {"corpus": "demo", "vocabulary": vocabulary}
    prepare_folder("prepare", output, settings, {"text": text, "data-bin": data_bin}, finish)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser("python_documentation", __doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the prepared folder")
    parser.add_argument(
        "--vocabulary", type=whole_number, default=VOCABULARY, metavar="N",
        help="sub-words to learn (default: %(default)s)",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    prepare(options.output, options.vocabulary)


if __name__ == "__main__":
    sys.exit(run("prepare", main))
