"""Options that the preparations share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def positive(text: str) -> int:
    """A whole number from 1, as a type of argparse."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


positive.__name__ = "whole number from 1"  # what argparse calls it


def add_common(parser: argparse.ArgumentParser) -> None:
    """`--downloads`, `--workers` and `--dry-run`."""
    parser.add_argument(
        "--downloads",
        type=Path,
        default=Path("data/downloads"),
        metavar="DIR",
        help="where downloaded files are kept, for every preparation (default: %(default)s)",
    )
    parser.add_argument(
        "--workers", type=positive, default=os.cpu_count(), metavar="N", help="processes (default: one per core)"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what would be done, and write nothing but this repository's .venv, where it is missing",
    )
