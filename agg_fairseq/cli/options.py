"""Arguments that several commands have, each with one name and one meaning."""

import argparse
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..checkpoints import Checkpoint, open_models
from ..data.subwords import FILES, TokenizerOptions
from ..data.vocabulary import GROUP_MEANINGS
from ..f2.decoupled_decoding import DECODINGS
from ..names import unique_names
from ..result import Result


@dataclass(frozen=True)
class Range:
    """The type of an option that is a number of a range, which `--help` and errors show."""

    kind: type[int] | type[float]
    least: float
    most: float = math.inf
    ends: str = "[]"  # "(" leaves out `least`, and ")" leaves out `most`

    def __call__(self, text: str) -> float:
        """The number; ArgumentTypeError for one out of the range, infinite, or none."""
        try:
            value = self.kind(text)
        except ValueError:
            value = math.nan
        is_left_out = "(" in self.ends and value == self.least
        is_left_out |= ")" in self.ends and value == self.most
        if is_left_out or not self.least <= value <= self.most or math.isinf(value):
            raise argparse.ArgumentTypeError(f"found {text!r}; expected {self}")
        return value

    def __str__(self) -> str:
        """The range in words, such as "a whole number of 1 or more"."""
        number = "a whole number" if self.kind is int else "a number"
        if self.most < math.inf:
            return f"{number} in {self.ends[0]}{self.least}, {self.most}{self.ends[1]}"
        return (
            f"{number} above {self.least}"
            if "(" in self.ends
            else f"{number} of {self.least} or more"
        )


COUNT = Range(int, 1)
_GROUPS = "; ".join(f"with {name}, {meaning}" for name, meaning in GROUP_MEANINGS.items()).replace(
    "%", "%%"
)
OPTIONS: dict[str, dict[str, Any]] = {
    "data": {"metavar": "DATA", "help": "folder of fairseq-preprocess; frequencies are those of "
        "its training split"},
    "train_text": {"metavar": "FILE", "help": "for models of transformers, text in UTF-8 that is "
        "counted instead"},
    "split": {"metavar": "SPLIT", "help": "split of DATA to read"},
    "groups": {"choices": tuple(GROUP_MEANINGS), "help": f"which tokens are frequent, medium and "
        f"rare: {_GROUPS}"},
    "occurrences_in": {
        "metavar": "DATA|FILE",
        "help": "group tokens by how often they occur in the training split of another folder with "
            "the same "
        "dictionary, or for models of transformers in a file: 100 times or more, 1 to 99 times, or "
        "never",
    },
    "context_window": {
        "type": Range(int, 0), "metavar": "N", "help": "tokens of context before each block of DATA, which "
            "are not scored",
    },
    "tokens_per_sample": {
        "type": COUNT, "metavar": "N",
        "help": "tokens per block, its context included (default: as in training; for a text, the "
            "models' positions)",
    },
    "max_tokens": {
        "type": COUNT, "metavar": "N", "help": "tokens per batch (default: 2048, or a block where "
            "that is longer)",
    },
    "bpe": {
        "choices": tuple(FILES), "default": "words",
        "help": "how words are split into tokens of the dictionary; with words, each word is one "
            "token",
    },
    "gpt2_encoder_json": {"metavar": "FILE", "help": "encoder.json of gpt2"},
    "gpt2_vocab_bpe": {"metavar": "FILE", "help": "vocab.bpe of gpt2"},
    "sentencepiece_model": {"metavar": "FILE", "help": "model of sentencepiece"},
    "bpe_codes": {"metavar": "FILE", "help": "codes of subword_nmt or fastbpe"},
    "words": {"nargs": "+", "metavar": "WORD", "help": "words whose neighbors are shown"},
    "datasets": {
        "nargs": "+", "metavar": "DATASET",
        "help": "files with a line word<TAB>word<TAB>score for each pair, or names, MEN, WS353, "
            "RG65, RW, of "
        "$AGG_DATA/word-similarity/NAME.txt",
    },
    "alignments": {"metavar": "FILE", "help": "alignments of the training split in Pharaoh format, "
        "as align writes"},
    "reference": {"metavar": "FILE", "help": "untokenized target side of the split, for sacreBLEU"},
    "tokenize": {
        "choices": ("13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "flores200"),
        "help": "tokenizer of sacreBLEU; zh for Chinese, char or ja-mecab for Japanese, whose "
            "words 13a does not split",
    },
    "moses": {"metavar": "LANG", "help": "language of Moses tokens in the translations, which are "
        "detokenized"},
    "max_texts": {"type": COUNT, "metavar": "N", "help": "continue only the first N prefixes "
        "(default: all)"},
    "prefixes": {"metavar": "FILE", "help": "continue the lines of this text in UTF-8 instead, each "
        "whole; </s> is the end of a line within a prefix"},
    "prefix_length": {"type": COUNT, "metavar": "N", "help": "tokens that the model is given"},
    "length": {"type": COUNT, "metavar": "N", "help": "tokens of a continuation and of a reference"},
    "topk": {"type": COUNT, "metavar": "K", "help": "nearest neighbors of a word, or most probable "
        "tokens to draw from"},
    "seed": {"type": Range(int, 0, 2**63 - 1), "metavar": "N", "help": "of the random numbers"},
    "f2_decoding": {
        "choices": DECODINGS,
        "help": "how a factorized output layer goes from class to token (default: as the "
            "checkpoint says)",
    },
    "batch_size": {
        "type": COUNT, "metavar": "N",
        "help": "texts at a time; changes no text, except those of sample-class, which the model "
            "itself draws",
    },
    "share": {
        "type": Range(float, 0, 1, "(]"), "metavar": "S",
        "help": "share of the offsets that is added, where another text is not to "
            "lose",
    },
    "tokenizer": {"metavar": "FILE", "help": "tokenizer.json of Hugging Face for a text, or the "
        "folder that it is in"},
    "tokens_per_update": {"type": COUNT, "metavar": "N", "help": "target tokens of an update, on all "
        "workers"},
    "beta2": {"type": Range(float, 0, 1, "[)"), "metavar": "B", "help": "β₂ of Adam, for a prediction in words"},
    "epochs": {"type": Range(float, 0, ends="(]"), "metavar": "E", "help": "of the training, for the same"},
    "rare_fraction": {"type": Range(float, 0, 1, "()"), "metavar": "X", "help": "--agg-rare-fraction, for the last "
        "line"},
    "as_published": {
        "action": "store_true",
        "help": "follow the released code of Yu et al. (2022): </s> and <unk> are frequent; words "
        "are split without the space before them (--bpe gpt2), tokens that the dictionary lacks "
        "are <unk>, and no pair whose cosine is defined is left out",
    },
    "device": {"metavar": "DEVICE", "help": "cpu, cuda, cuda:1, … (default: a GPU if there is "
        "one)"},
    "output": {"metavar": "FILE", "help": "file to write"},
    "force": {"action": "store_true", "help": "replace an existing --output"},
    "json": {"metavar": "FILE", "help": "also write all numbers to FILE"},
}  # fmt: skip
"""By the names of the parameters that they are for."""
TOKENIZER = ("bpe", "gpt2_encoder_json", "gpt2_vocab_bpe", "sentencepiece_model", "bpe_codes")


def calling(
    function: Callable[..., Result],
    add_input: Callable[[argparse.ArgumentParser], Any],
    **defaults: Any,
) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], Result]]:
    """`add_arguments` and `run` of a command that is a call of a function.

    Args:
        function: its first parameter is what `add_input` adds; the others are options.
        defaults: what `main` asks for, such as `transposed=True`.
    """

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_input(parser)
        add_parameters(parser, function)
        add_options(parser, "json")
        parser.set_defaults(**defaults)

    return add_arguments, partial(call, function)


def add_options(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Adds some of `OPTIONS`, where `changes` differ from them."""
    for name in names:
        flags = [f"--{name.replace('_', '-')}"]
        option = {**OPTIONS[name], **changes}
        if isinstance(option.get("type"), Range):
            option["help"] = f"{option['help']}; {option['type']}"
        parser.add_argument(*(["-o"] if name == "output" else []), *flags, **option)


def add_parameters(parser: argparse.ArgumentParser, function: Callable[..., Any]) -> None:
    """Adds those of `OPTIONS` that a function has as parameters after its first, with its
    defaults."""
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if isinstance(parameter.default, TokenizerOptions):
            add_options(parser, *TOKENIZER)
        elif name in OPTIONS:
            is_required = parameter.default is parameter.empty
            add_options(
                parser,
                name,
                **({"required": True} if is_required else {"default": parameter.default}),
            )


def call(function: Callable[..., Any], arguments: argparse.Namespace) -> Any:
    """Calls a function with what is opened for it, and with all arguments that have the names of
    its parameters."""
    given = dict(vars(arguments))
    if "bpe" in given:
        given["tokenizer"] = TokenizerOptions(*(given[name] for name in TOKENIZER))
    inputs = [given["opened"](arguments)] if "opened" in given else []
    parameters = list(inspect.signature(function).parameters)[len(inputs) :]
    return function(*inputs, **{name: given[name] for name in parameters if name in given})


def add_inputs(
    parser: argparse.ArgumentParser, metavar: str, help_text: str, part: str = "folder"
) -> None:
    """Inputs that are compared side by side, and `--name`; by default it is a part of the path
    (`names.unique_names`)."""
    default = {
        "folder": "that of its folder",
        "name": "its own",
        "stem": "its own, without ending",
    }[part]
    parser.add_argument("inputs", nargs="+", metavar=metavar, help=help_text)
    parser.add_argument(
        "--name", nargs="+", metavar="NAME", help=f"a name for each {metavar} (default: {default})"
    )
    parser.set_defaults(part=part, opened=files_by_name)


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
    parser.set_defaults(opened=lambda given: open_models(given.inputs, given.name, given.matrix))


def add_model(parser: argparse.ArgumentParser) -> None:
    """One model of fairseq."""
    parser.add_argument(
        "model", metavar="MODEL", help="checkpoint of fairseq-train, or the folder of a run"
    )
    parser.set_defaults(opened=lambda given: Checkpoint(given.model, training_state=False))
