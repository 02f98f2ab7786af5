"""Options of the commands: one for each parameter of the function behind a command, which its docstring explains."""

import argparse
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..data.subwords import FILES, TokenizerOptions
from ..data.vocabulary import GROUPINGS
from ..errors import UserError
from ..files import check_writable, write_json
from ..result import Result

MADE = {*"cache checkpoint checkpoints models logs texts runs folders options evaluations after_space order".split()}
"""Parameters that are no options: a command makes them of several, or of its inputs."""
SHARED: dict[str, dict[str, Any]] = {
    "output": {"flag": "-o --output"},
    "split": {"flag": "--gen-subset"},
    "valid_split": {"flag": "--valid-subset"},
    "indicator": {"choices": ("distance", "norm")},
    "kind": {"flag": "--bpe", "choices": FILES},
    "groups": {
        "choices": GROUPINGS,
        "help": "which tokens are frequent, medium and rare: with types, the first 30%, next 50% and last 20% of the "
        "vocabulary; with frequency, those that make up at least 1e-5, at least 1e-6 and less than 1e-6 of the "
        "training text",
    },
}
"""How options are spelled whose names are not those of their parameters, and what is the same for all commands."""


def description(function: Callable[..., Any]) -> str:
    """What a docstring says of a function: what precedes the arguments, and the reference."""
    about, _, sections = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:")
    reference = re.search(r"\n\nReference: .*?(?=\n\n|\Z)", sections, re.DOTALL)
    return about + (reference[0] if reference else "")


def add_options(parser: argparse.ArgumentParser, function: Callable[..., Any], **changes: Mapping[str, Any]) -> None:
    """Adds an option for each parameter of a function, or field of a dataclass, that the parser has none for yet.

    Type and default are those of the parameter, and the help is its entry in the docstring, where "None: …" says what
    the default is.

    Args:
        parser: of the command.
        function: whose docstring has a section `Args`.
        changes: by parameter, arguments of `add_argument` that differ, and as `flag` other names of the option,
            separated by spaces; one without dashes is an argument that is given without an option.
    """
    section = inspect.cleandoc(function.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]
    entries = re.split(r"^    (\w+): ", section, flags=re.MULTILINE)
    texts = {name: " ".join(text.split()).rstrip(".") for name, text in zip(entries[1::2], entries[2::2], strict=True)}
    known = {action.dest for action in parser._actions}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = str(parameter.annotation)
        if kind == "TokenizerOptions":
            add_options(parser, TokenizerOptions)
        if kind == "TokenizerOptions" or name in known or name in MADE:
            continue
        options: dict[str, Any] = {"help": texts.get(name, ""), **SHARED.get(name, {}), **changes.get(name, {})}
        flag = options.pop("flag", f"--{name.replace('_', '-')}")
        is_required = parameter.default is parameter.empty and "None" not in kind
        default = None if parameter.default is parameter.empty else parameter.default
        options["help"] = options["help"].replace("None: ", "default: ").replace("`", "").replace("%", "%%")
        if default:
            options["help"] += " (default: %(default)s)"
        if kind == "bool":
            parser.add_argument(*flag.split(), dest=name, action="store_true", help=options["help"])
            continue
        options["type"] = int if "int" in kind else float if "float" in kind else str
        if "Sequence" in kind:
            options["nargs"] = "+"
        if not flag.startswith("-"):
            options["nargs"] = None if is_required else "?"
        else:
            options |= {"dest": name, "required": is_required}
        if "choices" not in options:
            options.setdefault("metavar", {int: "N", float: "X", str: name.upper().removesuffix("S")}[options["type"]])
        parser.add_argument(*flag.split(), default=default, **options)


def add_inputs(parser: argparse.ArgumentParser, metavar: str, help_text: str, name: str = "that of its folder") -> None:
    """What is compared side by side, and `--name`, with its default."""
    parser.add_argument("inputs", nargs="+", metavar=metavar, help=help_text)
    parser.add_argument("--name", nargs="+", metavar="NAME", help=f"a name for each {metavar} (default: {name})")


def add_models(parser: argparse.ArgumentParser) -> None:
    """The models whose embeddings are measured, and `--matrix`."""
    add_inputs(
        parser,
        "MODEL",
        "checkpoints of fairseq-train or folders of runs, or models of transformers: folders that save_pretrained "
        "wrote, .safetensors files, or an index of several such files",
    )
    parser.add_argument(
        "--matrix",
        metavar="PARAMETER",
        help="measure this parameter of the models of transformers (default: the output embedding)",
    )


def add_data(parser: argparse.ArgumentParser, help_text: str = "", *, required: bool = False) -> None:
    """`--data`."""
    help_text = help_text or "folder of fairseq-preprocess, with the training split, in which tokens are counted"
    parser.add_argument("--data", required=required, metavar="DATA", help=help_text)


def add_split(parser: argparse.ArgumentParser, help_text: str, default: str = "test") -> None:
    """`--split`."""
    parser.add_argument("--split", default=default, metavar="SPLIT", help=help_text)


def add_groups(parser: argparse.ArgumentParser, default: str = "types") -> None:
    """`--groups`."""
    parser.add_argument(
        "--groups",
        choices=GROUPINGS,
        default=default,
        help="which tokens are frequent, medium and rare: with types, the first 30%%, next 50%% and last 20%% of the "
        "vocabulary; with frequency, those that make up at least 1e-5, at least 1e-6 and less than 1e-6 of the "
        "training text",
    )


def add_max_tokens(parser: argparse.ArgumentParser) -> None:
    """`--max-tokens`."""
    help_text = "tokens per batch (default: 2048, or a block where that is longer)"
    parser.add_argument("--max-tokens", type=int, metavar="N", help=help_text)


def add_device(parser: argparse.ArgumentParser) -> None:
    """`--device`."""
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda, cuda:1, … (default: a GPU if there is one)")


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", metavar="FILE", help="also write all numbers to FILE")


def options_of(function: Callable[..., Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that `add_options` added for a function, by the names of its parameters."""
    parameters = inspect.signature(function).parameters
    options = {name: value for name, value in vars(arguments).items() if name in parameters}
    if "tokenizer" in parameters and "kind" in arguments:
        options["tokenizer"] = TokenizerOptions(**options_of(TokenizerOptions, arguments))
    return options


RESULT = b'{\n  "signature"'  # how a file begins that `print_result` wrote


def check_json(json: str | None) -> None:
    """Checks, before an evaluation starts, that the file of --json can be written, and is not a model or its data.

    Raises:
        UserError: it cannot be written; or there is a file that no command wrote, such as a model or its data.
    """
    if json is None:
        return
    check_writable(json)
    if Path(json).is_file():
        with open(json, "rb") as file:
            start = file.read(len(RESULT))
        if start not in (b"", RESULT):
            raise UserError(f"--json: found {json}, a file that no command here wrote; name another")


def print_result(result: Result, json: str | None, *, transposed: bool = False) -> None:
    """Prints the table and the signature, and writes the numbers to the file `json`, if one is given."""
    print(f"{result.table(transposed=transposed)}\n\n{result.signature}")
    if json is not None:
        write_json(json, result.json())
