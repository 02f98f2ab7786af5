"""Prepares the demo's corpus, text that every Python carries, as the other preparations do theirs.

python -m scripts.data.demo --output DIR
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from agg_fairseq.errors import UserError, first_line

from ..command import run
from ..demo import corpus
from .binarise import SPLITS, binarise, dictionary_size
from .manifest import write_manifest
from .preparing import prepare_folder

VOCABULARY = 8000
"""Sub-words, as in scripts/demo.sh."""
SETTINGS = {"corpus": "demo", "vocabulary": VOCABULARY}


def main() -> None:
    """Makes the prepared folder, unless it is made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the prepared folder")
    folder = parser.parse_args().output
    stages = {"text": _write, "data-bin": partial(_binarise, folder)}
    prepare_folder("prepare", folder, lambda: SETTINGS, stages, partial(_finish, folder))


def _binarise(folder: Path, output: Path) -> None:
    binarise(folder / "text", output, 2, ["--only-source"])


def _finish(folder: Path) -> None:
    """Writes the manifest."""
    facts = {
        "corpus": "demo",
        "tokenizer": "sentencepiece",
        "bpe": {"kind": "sentencepiece", "sentencepiece_model": "text/sentencepiece.model"},
        "dictionary": dictionary_size(folder / "data-bin" / "dict.txt"),
    }
    write_manifest(folder, SETTINGS, facts, [folder / "text" / split for split in SPLITS])


def _write(folder: Path) -> None:
    try:
        corpus.write(folder, VOCABULARY)
    except RuntimeError as error:
        raise UserError(
            f"found too little text in this Python for {VOCABULARY:,} sub-words ({first_line(error)}); run it on a "
            "Python with its whole standard library"
        ) from error


if __name__ == "__main__":
    sys.exit(run("prepare", main))
