"""The help of all commands."""

import argparse

from agg_fairseq.cli.main import COMMANDS, build_parser


def parsers(parser):
    """A parser and those of its sub-commands."""
    yield parser
    for action in parser._actions:
        for command in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            yield from parsers(command)


def test_every_argument_has_a_help():
    """Which can be formatted, with its default."""
    for parser in parsers(build_parser(COMMANDS)):
        assert parser.format_help() and parser.description
        assert all(action.help or action.nargs == argparse.PARSER for action in parser._actions), parser.prog
