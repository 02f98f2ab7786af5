"""Prepares the demo's corpus, text that every Python carries, as the other preparations do theirs.

python -m scripts.data.demo --output DIR
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agg_fairseq.errors import UserError, first_line

from ..command import run
from ..demo import corpus
from .alone import alone
from .binarise import SPLITS, binarise, dictionary_size
from .manifest import is_complete, write_manifest
from .stages import made_again_if_lost, stage

VOCABULARY = 8000
"""Sub-words, as in scripts/demo.sh."""
SETTINGS = {"corpus": "demo", "vocabulary": VOCABULARY}


def main() -> None:
    """Makes the prepared folder, unless it is made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the prepared folder")
    folder = parser.parse_args().output
    with alone(folder), made_again_if_lost():
        if not is_complete(folder, SETTINGS):
            _prepare(folder)


def _prepare(folder: Path) -> None:
    text = folder / "text"
    stage(text, SETTINGS, _write)
    stage(folder / "data-bin", SETTINGS, lambda partial: binarise(text, partial, 2, ["--only-source"]))
    facts = {
        "corpus": "demo",
        "tokenizer": "sentencepiece",
        "bpe": {"kind": "sentencepiece", "sentencepiece_model": "text/sentencepiece.model"},
        "dictionary": dictionary_size(folder / "data-bin" / "dict.txt"),
    }
    write_manifest(folder, SETTINGS, facts, [text / split for split in SPLITS])


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
