"""Prints a script that completes commands, pictures, options and their choices in a shell.

Add this line to ~/.bashrc, or the same with zsh to ~/.zshrc:

    eval "$(agg-fairseq completion bash)"
"""

import argparse

from ..errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", nargs="?", choices=("bash", "zsh", "tcsh"), default="bash", help="default: bash")


def run(arguments: argparse.Namespace) -> None:
    from .main import COMMANDS, build_parser  # which imports this module

    try:
        import shtab
    except ImportError as error:
        raise UserError("completion: shtab is missing; pip install shtab") from error
    print(shtab.complete(build_parser(COMMANDS), shell=arguments.shell))
