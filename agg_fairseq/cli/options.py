"""Options of commands: parameters of functions, whose docstrings are their help."""

import argparse
import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .. import evaluation
from ..checkpoints import Checkpoint, open_models
from ..checkpoints.averaging import NAMES
from ..data.subwords import FILES, TokenizerOptions
from ..data.vocabulary import GROUP_MEANINGS
from ..errors import UserError
from ..f2.decoupled_decoding import DECODINGS
from ..names import unique_names
from ..result import Result


@dataclass(frozen=True)
class Range:
    """The type of an option that is a number of a range."""

    kind: type[int] | type[float]
    least: float
    most: float = math.inf
    ends: str = "[]"  # "(" leaves out `least`, and ")" leaves out `most`

    def __call__(self, text: str) -> float:
        """The number; ArgumentTypeError if it is out of the range or infinite."""
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
        number = "a whole number" if self.kind is int else "a number"
        if self.most < math.inf:
            return f"{number} in {self.ends[0]}{self.least}, {self.most}{self.ends[1]}"
        if "(" in self.ends:
            return f"{number} above {self.least}"
        return f"{number} of {self.least} or more"


COUNT = Range(int, 1)
TOKENIZERS = ("13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "flores200")  # of sacreBLEU
FILE_OPTIONS = (
    "train_text", "gpt2_encoder_json", "gpt2_vocab_bpe", "sentencepiece_model", "bpe_codes",
    "prefixes", "alignments", "reference", "tokenizer", "output", "tokens",
)  # fmt: skip
COUNTS = (
    "tokens_per_sample", "max_tokens", "prefix_length", "length", "max_texts", "batch_size",
    "tokens_per_update", "last",
)  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(FILE_OPTIONS, {"metavar": "FILE"}),
    "inputs": {"nargs": "+", "metavar": "INPUT"},
    "results": {"nargs": "+", "metavar": "FILE"},
    "json": {"metavar": "FILE", "help": "also write all numbers to FILE"},
    **dict.fromkeys(COUNTS, {"type": COUNT, "metavar": "N"}),
    "topk": {"type": COUNT, "metavar": "K"},
    "topp": {"type": Range(float, 0, 1, "(]"), "metavar": "P"},
    "context_window": {"type": Range(int, 0), "metavar": "N"},
    "seed": {"type": Range(int, 0, 2**63 - 1), "metavar": "N"},
    "share": {"type": Range(float, 0, 1, "(]"), "metavar": "S"},
    "beta2": {"type": Range(float, 0, 1, "[)"), "metavar": "B"},
    "epochs": {"type": Range(float, 0, ends="(]"), "metavar": "E"},
    "rare_fraction": {"type": Range(float, 0, 1, "()"), "metavar": "X"},
    "by": {"choices": NAMES},
    "groups": {"choices": GROUP_MEANINGS},
    "bpe": {"choices": FILES},
    "f2_decoding": {"choices": DECODINGS},
    "tokenize": {"choices": TOKENIZERS},
    "as_published": {"action": "store_true"},
    "bos": {"action": "store_true"},
    "force": {"action": "store_true"},
    "data": {"metavar": "DATA"},
    "split": {"metavar": "SPLIT"},
    "occurrences_in": {"metavar": "DATA|FILE"},
    "calibrate": {"metavar": "SPLIT|FILE"},
    "moved_from": {"metavar": "MODEL"},
    "words": {"nargs": "+", "metavar": "WORD"},
    "datasets": {"nargs": "+", "metavar": "DATASET"},
    "moses": {"metavar": "LANG"},
    "baseline": {"metavar": "NAME"},
    "device": {"metavar": "DEVICE"},
}
"""Parameters that are options, with what argparse needs."""
NEEDED: dict[str, tuple[str, ...]] = {
    "moses": ("reference",), "tokenize": ("reference",), "bpe": ("prefixes",),
    "epochs": ("beta2",), "groups": ("data", "train_text"),
}  # fmt: skip
"""Options that have an effect only with one of others, in commands that have these."""
REPLACED = {
    "split": ("prefixes",), "prefix_length": ("prefixes",), "groups": ("occurrences_in", "tokens"),
    "occurrences_in": ("tokens",),
}  # fmt: skip
"""Options that have none with another one."""
TOKENIZER = ("bpe", "gpt2_encoder_json", "gpt2_vocab_bpe", "sentencepiece_model", "bpe_codes")


def calling(
    function: Callable[..., Result],
    add_input: Callable[[argparse.ArgumentParser], Any] | None = None,
    **defaults: Any,
) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], Result]]:
    """`add_arguments` and `run` of a command that is a call of a function.

    Args:
        function: its first parameter is what `add_input` adds, by default an argument; the others
            are options.
        defaults: of what `main` asks for, such as `transposed`.
    """

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        if add_input is None:
            first = next(iter(inspect.signature(function).parameters))
            parser.add_argument(first, help=descriptions(function)[first], **OPTIONS[first])
        else:
            add_input(parser)
        add_parameters(parser, function)
        add_option(parser, "json")
        parser.set_defaults(**defaults)

    return add_arguments, partial(call, function)


def add_parameters(
    parser: argparse.ArgumentParser, function: Callable[..., Any], first: int = 1
) -> None:
    """Adds the `OPTIONS` that are parameters of a function, from the `first` on, with its defaults
    and the texts of its docstring."""
    texts = descriptions(function)
    for name, parameter in list(inspect.signature(function).parameters.items())[first:]:
        if isinstance(parameter.default, TokenizerOptions):
            add_parameters(parser, TokenizerOptions, 0)
        elif name in OPTIONS and parameter.default is parameter.empty:
            add_option(parser, name, texts.get(name), required=True)
        elif name in OPTIONS:
            add_option(parser, name, texts.get(name), default=parameter.default)


def add_option(
    parser: argparse.ArgumentParser, name: str, text: str | None = None, **settings: Any
) -> None:
    """Adds one of `OPTIONS`; `text`: its help, by default that of `agg_fairseq.evaluation`."""
    option = OPTIONS[name] | settings
    text = text or option.get("help") or descriptions(evaluation)[name]
    if isinstance(option.get("type"), Range):
        text += f"; {option['type']}"
    if name == "groups":
        for grouping, meaning in GROUP_MEANINGS.items():
            text += f"; with {grouping}, {meaning}"
    flags = ["-o"] if name == "output" else []
    flags.append(flag(name))
    option["help"] = text.replace("%", "%%")
    parser.add_argument(*flags, **option)


def descriptions(documented: object) -> dict[str, str]:
    """The texts about the arguments in a docstring, in the words of a command line."""
    text = inspect.getdoc(documented) or ""
    _, _, section = text.replace("\nShared arguments:\n", "\nArgs:\n").partition("\nArgs:\n")
    section = section.partition("\n\n")[0]
    texts = {}
    for part in re.split(r"\n    (?=\w)", f"\n{section}")[1:]:
        name, _, text = " ".join(part.split()).partition(": ")
        texts[name] = text.removesuffix(".").replace("`", "").replace("None: ", "default: ")
    return texts


def call(function: Callable[..., Any], arguments: argparse.Namespace) -> Any:
    """Calls a function with what is opened for it and the arguments named as its parameters."""
    given = dict(vars(arguments))
    check_effects(function, given)
    if "bpe" in given:
        given["tokenizer"] = TokenizerOptions(*(given[name] for name in TOKENIZER))
    inputs = [given["opened"](arguments)] if "opened" in given else []
    parameters = list(inspect.signature(function).parameters)[len(inputs) :]
    return function(*inputs, **{name: given[name] for name in parameters if name in given})


def check_effects(function: Callable[..., Any], given: dict[str, Any]) -> None:
    """Raises UserError for an option of a function that was given, but has no effect."""
    parameters = {**inspect.signature(TokenizerOptions).parameters}
    parameters |= inspect.signature(function).parameters
    for name, parameter in parameters.items():
        if name not in given or given[name] == parameter.default:
            continue
        needed = [one for one in NEEDED.get(name, ()) if one in given]
        if needed and all(given[one] is None for one in needed):
            others = " or ".join(map(flag, needed))
            raise UserError(f"{flag(name)}: found it without {others}; expected both")
        for other in REPLACED.get(name, ()):
            if given.get(other) is not None:
                raise UserError(f"{flag(name)}: found it with {flag(other)}, which takes its place")


def flag(name: str) -> str:
    """An option, as one types it."""
    return f"--{name.replace('_', '-')}"


def add_inputs(
    parser: argparse.ArgumentParser, metavar: str, help_text: str, part: str = "folder"
) -> None:
    """Inputs that are compared side by side, and `--name`, by default a `part` of the path."""
    own = {"folder": "that of its folder", "name": "its own", "stem": "its own, without ending"}
    names = f"a name for each {metavar} (default: {own[part]})"
    parser.add_argument("inputs", nargs="+", metavar=metavar, help=help_text)
    parser.add_argument("--name", nargs="+", metavar="NAME", help=names)
    parser.set_defaults(part=part, opened=files_by_name)


def files_by_name(arguments: argparse.Namespace) -> dict[str, Path]:
    names = unique_names(arguments.inputs, arguments.name, arguments.part)
    return dict(zip(names, map(Path, arguments.inputs), strict=True))


def add_models(parser: argparse.ArgumentParser) -> None:
    """Models whose embeddings are measured, and `--matrix`."""
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
    parser.set_defaults(opened=lambda given: Checkpoint(given.model))
