"""Options of commands: parameters of functions, whose docstrings are their help.

To import what is behind a command takes seconds. So a function is described by its source, and
imported when it is called.
"""

import argparse
import ast
import importlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

from ..data.subwords import FILES
from ..errors import UserError, flag
from ..names import GROUP_MEANINGS, unique_names


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
    "context_window": {"type": Range(int, 0), "metavar": "N"},
    "seed": {"type": Range(int, 0, 2**63 - 1), "metavar": "N"},
    "share": {"type": Range(float, 0, 1, "(]"), "metavar": "S"},
    "beta2": {"type": Range(float, 0, 1, "[)"), "metavar": "B"},
    "epochs": {"type": Range(float, 0, ends="(]"), "metavar": "E"},
    "rare_fraction": {"type": Range(float, 0, 1, "()"), "metavar": "X"},
    "by": {"choices": ("epoch", "update")},
    "groups": {"choices": GROUP_MEANINGS},
    "bpe": {"choices": FILES},
    "f2_decoding": {"choices": ("joint", "greedy-class", "sample-class")},
    "tokenize": {"choices": TOKENIZERS},
    **dict.fromkeys(("as_published", "bos", "force"), {"action": "store_true"}),
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
    "matrix": {
        "metavar": "PARAMETER",
        "help": "measure this parameter of the models of transformers (default: the output "
        "embedding)",
    },
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


@dataclass
class Function:
    """A function of this package, or a dataclass."""

    module: str  # such as `evaluation.bleu`
    name: str

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Imports the module, and calls the function."""
        module = importlib.import_module(f"agg_fairseq.{self.module}")
        return getattr(module, self.name)(*inputs, **options)

    @cached_property
    def source(self) -> Any:
        """Its part of the syntax tree of the module."""
        body = syntax_tree(self.module).body
        return next(part for part in body if getattr(part, "name", None) == self.name)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The default of each parameter, as text if it is no literal; `...` where it has none."""
        if isinstance(self.source, ast.ClassDef):
            fields = [part for part in self.source.body if isinstance(part, ast.AnnAssign)]
            values = {ast.unparse(field.target): field.value for field in fields}
        else:
            given = self.source.args
            names = [one.arg for one in (*given.args, *given.kwonlyargs)]
            first = [None] * (len(given.args) - len(given.defaults))
            values = dict(zip(names, (*first, *given.defaults, *given.kw_defaults), strict=True))
        parameters: dict[str, Any] = dict.fromkeys(values, ...)
        for name, value in values.items():
            if value is not None:
                is_literal = isinstance(value, ast.Constant | ast.Tuple)
                parameters[name] = ast.literal_eval(value) if is_literal else ast.unparse(value)
        return parameters


@cache
def syntax_tree(module: str) -> ast.Module:
    """That of a module of this package."""
    path = Path(__file__).parents[1].joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


TOKENIZER = Function("data.subwords", "TokenizerOptions")


@dataclass(frozen=True)
class Files:
    """Inputs of a command. With a `part`, they are compared side by side, and `--name` names them; by
    default, that part of their paths does."""

    metavar: str
    help: str
    part: str = "folder"
    nargs: ClassVar[str | None] = "+"

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Adds the arguments of the command."""
        own = {"folder": "that of its folder", "name": "its own", "stem": "its own, without ending"}
        parser.add_argument("inputs", nargs=self.nargs, metavar=self.metavar, help=self.help)
        if self.part:
            names = f"a name for each {self.metavar} (default: {own[self.part]})"
            parser.add_argument("--name", nargs="+", metavar="NAME", help=names)

    def open(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """The first argument of the function."""
        names = unique_names(arguments.inputs, arguments.name, self.part)
        return dict(zip(names, map(Path, arguments.inputs), strict=True))


class Models(Files):
    """Models whose embeddings are measured, and `--matrix`."""

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Also adds `--matrix`."""
        super().add(parser)
        add_option(parser, "matrix")

    def open(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """The models by their names."""
        from ..checkpoints import open_models

        return open_models(arguments.inputs, arguments.name, arguments.matrix)


class Model(Files):
    """One model of fairseq, without `--name`."""

    nargs = None

    def open(self, arguments: argparse.Namespace) -> Any:
        """The checkpoint."""
        from ..checkpoints import Checkpoint

        return Checkpoint(arguments.inputs)


MODELS = Models(
    "MODEL",
    "checkpoints of fairseq-train, folders of runs, or models of transformers: folders of "
    "save_pretrained, .safetensors files, or an index of several such files",
)
MODEL = Model("MODEL", "checkpoint of fairseq-train, or the folder of a run", "")


def calling(
    module: str, name: str, inputs: Files | None = None, **defaults: Any
) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], Any]]:
    """`add_arguments` and `run` of a command that is a call of a function.

    Args:
        module: that of the `Function`, and its name.
        inputs: its first parameter, by default an argument; the others are options.
        defaults: of what `main` asks for, such as `transposed`.
    """
    function = Function(module, name)

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        if inputs is None:
            first = next(iter(function.parameters))
            text = descriptions(function.source)[first]
            parser.add_argument(first, help=text, **OPTIONS[first])
        else:
            inputs.add(parser)
        add_parameters(parser, function)
        add_option(parser, "json")
        parser.set_defaults(**defaults)

    return add_arguments, lambda arguments: call(function, arguments, inputs)


def call(function: Function, arguments: argparse.Namespace, inputs: Files | None = None) -> Any:
    """Calls a function with the options that are its parameters, and with what is opened for it."""
    options = given_options(function, arguments)
    return function(**options) if inputs is None else function(inputs.open(arguments), **options)


def given_options(function: Function, arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments that are parameters of a function; UserError for one that has no effect."""
    given, parameters = vars(arguments), {**TOKENIZER.parameters, **function.parameters}
    for name, default in parameters.items():
        if name not in given or given[name] == default:
            continue
        needed = [one for one in NEEDED.get(name, ()) if one in given]
        if needed and all(given[one] is None for one in needed):
            others = " or ".join(map(flag, needed))
            raise UserError(f"{flag(name)}: found it without {others}; expected both")
        for other in REPLACED.get(name, ()):
            if given.get(other) is not None:
                raise UserError(f"{flag(name)}: found it with {flag(other)}, which takes its place")
    options = {name: given[name] for name in function.parameters if name in given}
    if "bpe" in given:
        names = [name for name in TOKENIZER.parameters if name in given]
        options["tokenizer"] = TOKENIZER(**{name: given[name] for name in names})
    return options


def add_parameters(parser: argparse.ArgumentParser, function: Function, first: int = 1) -> None:
    """Adds the `OPTIONS` that are parameters of a function, from the `first` on, with its defaults
    and the texts of its docstring."""
    texts = descriptions(function.source)
    for name, default in list(function.parameters.items())[first:]:
        if default == "WORDS":  # a `TokenizerOptions`
            add_parameters(parser, TOKENIZER, 0)
        elif name in OPTIONS:
            needed = {"required": True} if default is ... else {"default": default}
            add_option(parser, name, texts.get(name), **needed)


def add_option(
    parser: argparse.ArgumentParser, name: str, text: str | None = None, **settings: Any
) -> None:
    """Adds one of `OPTIONS`; `text`: its help, by default that of `agg_fairseq.evaluation`."""
    option = OPTIONS[name] | settings
    text = text or option.get("help") or descriptions(syntax_tree("evaluation"))[name]
    if isinstance(option.get("type"), Range):
        text += f"; {option['type']}"
    if name == "groups":
        for grouping, meaning in GROUP_MEANINGS.items():
            text += f"; with {grouping}, {meaning}"
    flags = ["-o"] if name == "output" else []
    flags.append(flag(name))
    option["help"] = text.replace("%", "%%")
    parser.add_argument(*flags, **option)


@cache
def descriptions(documented: ast.AST) -> dict[str, str]:
    """The texts about the arguments in the docstring of a function, a class or a module, in the words
    of a command line."""
    text = ast.get_docstring(documented) or ""
    text = text.replace("\nShared arguments:\n", "\nArgs:\n")
    section = text.partition("\nArgs:\n")[2].partition("\n\n")[0]
    texts = {}
    for part in re.split(r"\n    (?=\w)", f"\n{section}")[1:]:
        name, _, text = " ".join(part.split()).partition(": ")
        texts[name] = text.removesuffix(".").replace("`", "").replace("None: ", "default: ")
    return texts
