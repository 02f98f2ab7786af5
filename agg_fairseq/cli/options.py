"""Options that several commands have, and what happens to a result: it is printed, and written to --json."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ..checkpoints.transformers_model import is_pretrained
from ..data.subwords import FILES, Tokenizer
from ..data.vocabulary import GROUPINGS
from ..errors import UserError
from ..files import check_not_inside, check_writable, write_json
from ..result import Result

TOKENIZER_FILES = {
    "gpt2_encoder_json": "encoder.json of --bpe gpt2",
    "gpt2_vocab_bpe": "vocab.bpe of --bpe gpt2",
    "sentencepiece_model": "model of --bpe sentencepiece",
    "bpe_codes": "codes of --bpe fastbpe and subword_nmt",
}


def add_names(parser: argparse.ArgumentParser, what: str = "checkpoint", default: str = "its folder") -> None:
    """`--name`."""
    parser.add_argument("--name", nargs="+", metavar="NAME", help=f"a name per {what} (default: {default})")


def add_grouping(parser: argparse.ArgumentParser, default: str | None = "types") -> None:
    """`--groups`, one of `GROUPINGS`."""
    shown = "%(default)s" if default else "the default of each measure"
    parser.add_argument(
        "--groups",
        choices=tuple(GROUPINGS),
        default=default,
        help="which tokens are frequent, medium and rare: with types, the first 30%%, next 50%% and last 20%% of the "
        "vocabulary; with frequency, those that make up at least 1e-5, at least 1e-6 and less than 1e-6 of the "
        f"training text (default: {shown})",
    )


def add_models(parser: argparse.ArgumentParser) -> None:
    """The models whose embeddings are measured, and `--name` and `--matrix`."""
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="MODEL",
        help="checkpoints of fairseq-train or folders of runs, or models of transformers: folders that save_pretrained "
        "wrote, .safetensors files, or an index of several such files",
    )
    add_names(parser, "model")
    parser.add_argument(
        "--matrix",
        metavar="PARAMETER",
        help="measure this parameter of the models of transformers (default: the output embedding)",
    )


def add_frequencies(parser: argparse.ArgumentParser) -> None:
    """`--data` and `--text`, where the training frequencies of the tokens come from."""
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="for checkpoints of fairseq-train: folder written by fairseq-preprocess, with the training split",
    )
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="for models of transformers: text in UTF-8, in which their tokenizer.json counts tokens",
    )


def add_data(parser: argparse.ArgumentParser) -> None:
    """`--data`, where the training frequencies come from."""
    parser.add_argument(
        "--data", required=True, metavar="DATA", help="folder written by fairseq-preprocess, with the training split"
    )


def add_unused(parser: argparse.ArgumentParser) -> None:
    """`--unused`."""
    parser.add_argument(
        "--unused",
        nargs="+",
        type=int,
        metavar="ID",
        help="tokens that are known to be unused (default: those that the vocabulary tells)",
    )


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    """`--bpe` and the files of each kind, by the names that fairseq's options have."""
    parser.add_argument(
        "--bpe",
        choices=tuple(FILES),
        default="words",
        help="how words are split into tokens of the dictionary (default: words, where each word is one token)",
    )
    for name, help_text in TOKENIZER_FILES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", help=help_text)


def tokenizer_of(arguments: argparse.Namespace) -> Tokenizer:
    """The tokenizer that the options of `add_tokenizer` describe."""
    paths = {name: getattr(arguments, name) for name in TOKENIZER_FILES}
    return Tokenizer(arguments.bpe, **{name: Path(path) for name, path in paths.items() if path is not None})


def add_generation(parser: argparse.ArgumentParser) -> None:
    """Which prefixes of a split are continued, by how many tokens, and how these are chosen."""
    parser.add_argument(
        "--prefix-length", type=int, default=50, metavar="P", help="tokens that the model is given (default: 50)"
    )
    parser.add_argument(
        "--length", type=int, default=100, metavar="L", help="tokens of a continuation and a reference (default: 100)"
    )
    parser.add_argument("--max-texts", type=int, metavar="N", help="continue only the first N prefixes (default: all)")
    parser.add_argument(
        "--topk",
        type=int,
        metavar="K",
        help="draw each token from the K most probable tokens (default: take the most probable one)",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="seed of the random numbers (default: 1)")


def add_split(parser: argparse.ArgumentParser, use: str) -> None:
    """`--gen-subset`, the split that is read; `use` says what for."""
    parser.add_argument(
        "--gen-subset", dest="split", default="test", metavar="SPLIT", help=f"split to {use} (default: test)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", metavar="FILE", help="also write all numbers to FILE")


def add_device(parser: argparse.ArgumentParser) -> None:
    """`--device`."""
    parser.add_argument("--device", help="cpu, cuda, cuda:1, … (default: a GPU if there is one)")


PRETRAINED_FILES = ("*config.json", "*token*.json", "vocab.json", "*.index.json", "*.safetensors", "*.txt", "*.model")
"""What the folder of a model of transformers has beside results that were written there."""


def check_json(json: str | None, inputs: Sequence[str | Path | None]) -> None:
    """Checks, before an evaluation starts, that the file of --json can be written and is none of those that are read.

    Args:
        json: the file to write, or None.
        inputs: the files and folders that are read, None for those that were not given.

    Raises:
        UserError: it cannot be written, or it is read.
    """
    if json is None:
        return
    target = Path(json).parent.resolve() / Path(json).name
    for source in (Path(path).resolve() for path in inputs if path is not None):
        if target.resolve() == source:
            raise UserError(f"--json: found {json}, a file that is read; name another")
        if is_pretrained(source):
            folder = source if source.is_dir() else source.parent
            if any(fnmatch(target.name, pattern) for pattern in PRETRAINED_FILES):
                check_not_inside("--json", json, folder)
        elif target.suffix != ".json":  # that of an earlier evaluation may be replaced
            check_not_inside("--json", json, source)
    check_writable(json)


def options_of(function: Callable[..., Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of a command that its function, or class of options, has as parameters of the same name."""
    return {name: value for name, value in vars(arguments).items() if name in inspect.signature(function).parameters}


def print_result(result: Result, json: str | None, *, transposed: bool = False) -> None:
    """Prints the table and the signature, and writes the numbers to the file `json`, if one is given."""
    print(f"{result.table(transposed=transposed)}\n\n{result.signature}")
    if json is not None:
        write_json(json, result.json())
