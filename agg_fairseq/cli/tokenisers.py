"""The options that say how words are split into tokens; they bear the names that fairseq's have."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..data.subwords import FILES, Splitter, Tokenizer

HELP = {
    "gpt2_encoder_json": "encoder.json of --bpe gpt2",
    "gpt2_vocab_bpe": "vocab.bpe of --bpe gpt2",
    "sentencepiece_model": "model of --bpe sentencepiece",
    "bpe_codes": "codes of --bpe fastbpe and subword_nmt",
}


def add_tokeniser(parser: argparse.ArgumentParser) -> None:
    """`--bpe` and the files of each kind."""
    parser.add_argument(
        "--bpe",
        choices=tuple(FILES),
        default="words",
        help="how words are split into tokens of the dictionary (default: words, which are not)",
    )
    for name, said in HELP.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", help=said)


def tokeniser_files(arguments: argparse.Namespace) -> list[str]:
    """The files that the options of `add_tokeniser` name."""
    return [getattr(arguments, name) for name in HELP if getattr(arguments, name) is not None]


def splitter_of(arguments: argparse.Namespace, dictionary: Any) -> Splitter:
    """What the options of `add_tokeniser` ask for, over fairseq's dictionary.

    Raises:
        UserError: as `splitter`.
    """
    files = {name: Path(getattr(arguments, name)) for name in HELP if getattr(arguments, name) is not None}
    return Tokenizer(arguments.bpe, **files).splitter(dictionary)
