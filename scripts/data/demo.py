"""Prepares the demo's corpus, text that every Python carries, as the other preparations do theirs.

python -m scripts.data.demo --output DIR
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..command import run
from ..demo import corpus
from .binarise import SPLITS, binarise, dictionary_size
from .manifest import is_complete, write_manifest
from .stages import stage

VOCABULARY = 8000
"""Sub-words, as in scripts/demo.sh."""


def main() -> None:
    """Makes the prepared folder, unless it is made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the prepared folder")
    folder = parser.parse_args().output
    settings = {"corpus": "demo", "vocabulary": VOCABULARY}
    if is_complete(folder, settings):
        return
    text = folder / "text"
    stage(text, settings, lambda partial: corpus.write(partial, VOCABULARY))
    stage(folder / "data-bin", settings, lambda partial: binarise(text, partial, 2, ["--only-source"]))
    facts = {
        "corpus": "demo",
        "tokenizer": "sentencepiece",
        "bpe": {"kind": "sentencepiece", "sentencepiece_model": "text/sentencepiece.model"},
        "dictionary": dictionary_size(folder / "data-bin" / "dict.txt"),
    }
    write_manifest(folder, settings, facts, [text / split for split in SPLITS])


if __name__ == "__main__":
    sys.exit(run("prepare", main))
