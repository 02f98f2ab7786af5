"""Prints the folder to pass to fairseq's --user-dir:

fairseq-train --user-dir "$(agg-fairseq user-dir)" --criterion agg …
"""

import argparse
from pathlib import Path


def run(arguments: argparse.Namespace) -> None:
    print(Path(__file__).resolve().parents[1] / "fairseq_plugin" / "user_dir" / "agg_plugin")
