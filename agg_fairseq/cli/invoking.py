"""Calling a sub-command from another one: its options, with its own defaults and checks."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def options(add_arguments: Callable[[argparse.ArgumentParser], None], *words: object) -> argparse.Namespace:
    """What a sub-command would be given by these words of a command line."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    return parser.parse_args([str(word) for word in words])
