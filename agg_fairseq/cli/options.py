"""Arguments that several commands have, each with one name and one meaning."""

import argparse
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..checkpoints import Checkpoint, EmbeddingSource
from ..checkpoints.opening import open_models
from ..data.subwords import FILES, TokenizerOptions
from ..data.vocabulary import GROUP_MEANINGS
from ..errors import UserError
from ..files import read_json_object
from ..names import unique_names
from ..result import Result

_GROUPS = "; ".join(f"with {name}, {meaning}" for name, meaning in GROUP_MEANINGS.items()).replace("%", "%%")
OPTIONS: dict[str, dict[str, Any]] = {
    "--data": {"metavar": "DATA", "help": "folder of fairseq-preprocess, with the training split, which is counted"},
    "--train-text": {"metavar": "FILE", "help": "for models of transformers, text in UTF-8 that is counted instead"},
    "--split": {"default": "test", "metavar": "SPLIT", "help": "split of DATA to read"},
    "--groups": {
        "choices": tuple(GROUP_MEANINGS), "default": "types",
        "help": f"which tokens are frequent, medium and rare: {_GROUPS}",
    },
    "--occurrences-in": {
        "metavar": "DATA",
        "help": "group tokens by how often they occur in the training split of another folder with the same "
        "dictionary: 100 times or more, 1 to 99 times, or never",
    },
    "--tokens-per-sample": {
        "type": int, "metavar": "N",
        "help": "tokens per block, its context included (default: as in training; for a text, the models' positions)",
    },
    "--max-tokens": {
        "type": int, "metavar": "N", "help": "tokens per batch (default: 2048, or a block where that is longer)",
    },
    "--bpe": {
        "choices": tuple(FILES), "default": "words",
        "help": "how words are split into tokens of the dictionary; with words, each word is one token",
    },
    "--gpt2-encoder-json": {"metavar": "FILE", "help": "encoder.json of gpt2"},
    "--gpt2-vocab-bpe": {"metavar": "FILE", "help": "vocab.bpe of gpt2"},
    "--sentencepiece-model": {"metavar": "FILE", "help": "model of sentencepiece"},
    "--bpe-codes": {"metavar": "FILE", "help": "codes of subword_nmt or fastbpe"},
    "--words": {
        "nargs": "+", "metavar": "WORD",
        "help": "words whose neighbors are shown (default: the three most frequent of the rare ones)",
    },
    "--unused": {
        "type": int, "nargs": "+", "metavar": "ROW",
        "help": "rows of tokens that are known to be unused (default: those that the vocabulary knows)",
    },
    "--datasets": {
        "nargs": "+", "metavar": "DATASET",
        "help": "files with a line word<TAB>word<TAB>score for each pair, or names, MEN, WS353, RG65, RW, of "
        "$AGG_DATA/word-similarity/NAME.txt",
    },
    "--alignments": {"metavar": "FILE", "help": "alignments of the training split in Pharaoh format, as align writes"},
    "--reference": {"metavar": "FILE", "help": "untokenized target side of the split, for sacreBLEU"},
    "--tokenize": {
        "choices": ("13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "flores200"), "default": "13a",
        "help": "tokenizer of sacreBLEU; zh for Chinese, char or ja-mecab for Japanese, whose words 13a does not split "
        "(default: 13a)",
    },
    "--moses": {"metavar": "LANG", "help": "language of Moses tokens in the translations, which are detokenized"},
    "--max-texts": {"type": int, "metavar": "N", "help": "continue only the first N prefixes (default: all)"},
    "--device": {"metavar": "DEVICE", "help": "cpu, cuda, cuda:1, … (default: a GPU if there is one)"},
    "--json": {"metavar": "FILE", "help": "also write all numbers to FILE"},
}  # fmt: skip
TOKENIZER = ("--bpe", "--gpt2-encoder-json", "--gpt2-vocab-bpe", "--sentencepiece-model", "--bpe-codes")


def add_options(parser: argparse.ArgumentParser, *flags: str, **changes: Any) -> None:
    """Adds some of `OPTIONS`, where `changes` differ from them."""
    for flag in flags:
        parser.add_argument(flag, **{**OPTIONS[flag], **changes})


def select(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Some of the arguments, as options of a function whose parameters have the same names."""
    return {name: getattr(arguments, name) for name in names}


def call(function: Callable[..., Any], arguments: argparse.Namespace, *inputs: Any) -> Any:
    """Calls a function with inputs, and with all arguments that have the names of its other parameters."""
    given = dict(vars(arguments))
    if "bpe" in given:
        given["tokenizer"] = TokenizerOptions(*(given[flag[2:].replace("-", "_")] for flag in TOKENIZER))
    parameters = list(inspect.signature(function).parameters)[len(inputs) :]
    return function(*inputs, **{name: given[name] for name in parameters if name in given})


def calling(function: Callable[..., Result], opened: Callable[..., Any] | None = None) -> Callable[..., Result]:
    """The `run` of a command that is nothing but `call`, with what is opened for it."""
    return lambda arguments: call(function, arguments, *([opened(arguments)] if opened else []))


def add_inputs(parser: argparse.ArgumentParser, metavar: str, help_text: str, part: str = "folder") -> None:
    """What is compared side by side, and `--name`; by default it is a part of the path (`names.unique_names`)."""
    default = {"folder": "that of its folder", "name": "its own", "stem": "its own, without ending"}[part]
    parser.add_argument("inputs", nargs="+", metavar=metavar, help=help_text)
    parser.add_argument("--name", nargs="+", metavar="NAME", help=f"a name for each {metavar} (default: {default})")
    parser.set_defaults(part=part)


def files_by_name(arguments: argparse.Namespace) -> dict[str, Path]:
    """The inputs by their names."""
    names = unique_names(arguments.inputs, arguments.name, arguments.part)
    return dict(zip(names, map(Path, arguments.inputs), strict=True))


def add_models(parser: argparse.ArgumentParser) -> None:
    """The models whose embeddings are measured, and `--matrix`."""
    models = "checkpoints of fairseq-train, folders of runs, or models of transformers: folders of save_pretrained, "
    add_inputs(parser, "MODEL", f"{models}.safetensors files, or an index of several such files")
    matrix = "measure this parameter of the models of transformers (default: the output embedding)"
    parser.add_argument("--matrix", metavar="PARAMETER", help=matrix)


def models_by_name(arguments: argparse.Namespace) -> dict[str, EmbeddingSource]:
    return open_models(arguments.inputs, arguments.name, arguments.matrix)


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="checkpoint of fairseq-train, or the folder of a run")


def open_model(arguments: argparse.Namespace) -> Checkpoint:
    return Checkpoint(arguments.model, training_state=False)


def read_results(paths: Sequence[str]) -> dict[str, Result]:
    """What commands wrote to --json, by its path."""
    results, expected = {}, "what a command of agg-fairseq wrote to --json"
    for path in paths:
        try:
            results[path] = Result.from_json(read_json_object(path, expected))
        except ValueError as error:
            raise UserError(f"{path}: {error}; expected {expected}") from error
    return results
