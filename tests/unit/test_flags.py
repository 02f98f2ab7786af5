"""The flags of all commands, as tests/unit/flags.txt lists them."""

import argparse
from pathlib import Path

from agg_fairseq.cli.main import COMMANDS, build_parser

FLAGS = Path(__file__).with_name("flags.txt")


def parsers(parser):
    """A parser and those of its sub-commands."""
    yield parser
    for action in parser._actions:
        for command in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            yield from parsers(command)


def described():
    """A line for each argument of each command: its names, values and default."""
    for parser in parsers(build_parser(COMMANDS)):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
                continue
            names = "/".join(action.option_strings) or action.metavar or action.dest
            kind = action.type.__name__ if action.type else "str" if action.nargs != 0 else "flag"
            values = f"{{{','.join(map(str, action.choices))}}}" if action.choices else kind
            many = "…" if action.nargs == "+" else ""
            default = " required" if action.required else f" = {action.default}"
            yield f"{parser.prog.removeprefix('agg-fairseq ')} {names}: {values}{many}{default}"


def test_flags_are_those_of_the_list():
    """After a change that is meant, `python -m tests.unit.test_flags` writes the list; the CHANGELOG says it."""
    assert list(described()) == FLAGS.read_text().splitlines()


def test_every_argument_has_a_help():
    """Which can be formatted, with its default."""
    for parser in parsers(build_parser(COMMANDS)):
        assert parser.format_help() and parser.description
        assert all(action.help or action.nargs == argparse.PARSER for action in parser._actions), parser.prog


if __name__ == "__main__":
    FLAGS.write_text("\n".join(described()) + "\n")
