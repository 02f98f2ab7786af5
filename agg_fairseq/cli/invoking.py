"""Calling a sub-command from another one: its options, with its own defaults."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def options(add_arguments: Callable[[argparse.ArgumentParser], None], **given: Any) -> argparse.Namespace:
    """The options of a sub-command: those given, by their names, and the defaults of the others.

    Raises:
        TypeError: it has no such option.
    """
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    defaults = {action.dest: action.default for action in parser._actions}
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        raise TypeError(f"expected options of {sorted(defaults)}, got {unknown}")
    return argparse.Namespace(**{**defaults, **given})
