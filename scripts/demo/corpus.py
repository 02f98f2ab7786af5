"""Writes the demo's corpus: real English that every Python installation carries.

The language reference in `pydoc_data.topics` and the docstrings of the standard library, read from the source without
importing it, cleaned, split by document into train, valid and test, and cut into sub-words with sentencepiece.

    python scripts/demo/corpus.py OUTPUT_FOLDER [--vocabulary 8000]
"""

import argparse
import ast
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

import sentencepiece

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
    """All docstrings of a source file; none where it is no Python of this version (a template, say)."""
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
    """Text without code: what is left between blank lines, each paragraph on one line, without mark-up."""
    kept = (re.sub(r"\s+", " ", block).strip() for block in re.split(r"\n\s*\n", text) if not looks_like_code(block))
    cleaned = (re.sub(r"[`*]|:[a-z]+:(?=`)|={3,}|-{3,}|\.\. ", "", paragraph).strip() for paragraph in kept)
    return [paragraph for paragraph in cleaned if len(re.findall(r"[A-Za-z]{2,}", paragraph)) >= MIN_WORDS]


def looks_like_code(block: str) -> bool:
    """Doctests, grammar rules, indented statements, and blocks that are mostly symbols."""
    letters = sum(character.isalpha() or character.isspace() for character in block)
    is_statement = re.match(
        r"\s{3,}(if|for|while|def|class|with|try|import|from|return|raise)\b.*[:)]\s*$", block, re.M
    )
    return ">>>" in block or "::=" in block or is_statement is not None or letters < 0.75 * len(block)


def split(everything: Iterator[list[str]]) -> dict[str, list[str]]:
    """Lines by split, each document whole in one of them; a paragraph that was seen before is dropped."""
    splits: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    seen: set[str] = set()
    for number, document in enumerate(document for document in everything if document):
        fresh = [paragraph for paragraph in dict.fromkeys(document) if paragraph not in seen]
        seen.update(fresh)
        splits[HELD_OUT.get(number % 20, "train")] += fresh
    return splits


def write(output: Path, vocabulary: int) -> None:
    """Writes {train,valid,test} in sub-words into a folder, and the sentencepiece model beside them.

    Raises:
        RuntimeError: the text has no so many sub-words; its last line says why.
    """
    output.mkdir(parents=True, exist_ok=True)
    splits = split(documents())
    model = output / "sentencepiece"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(splits["train"]),
        model_prefix=str(model),
        vocab_size=vocabulary,
        model_type="bpe",
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{model}.model")
    for name, lines in splits.items():
        pieces = [" ".join(processor.encode(line, out_type=str)) for line in lines]
        (output / name).write_text("\n".join(pieces) + "\n", encoding="utf-8")
        print(f"{name}: {len(lines):,} paragraphs, {sum(len(p.split()) for p in pieces):,} sub-words", file=sys.stderr)


def main() -> None:
    """Writes OUTPUT_FOLDER/{train,valid,test} in sub-words, and the sentencepiece model beside them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--vocabulary", type=int, default=8000, help="sub-words to learn (default: 8000)")
    arguments = parser.parse_args()
    try:
        write(arguments.output, arguments.vocabulary)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1]
        print(f"corpus: error: --vocabulary {arguments.vocabulary} does not fit this text: {reason}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
