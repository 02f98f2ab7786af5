"""Prints the versions of the relevant packages, and what cannot work with them, with its remedy.

The exit status is 1 if training with fairseq cannot start.
"""

import argparse
import importlib
import importlib.metadata
import platform

from .. import __version__
from ..errors import FAIRSEQ_REMEDY, first_line

IMPORTED = {"torch": "pip install -c constraints.txt torch", "fairseq_cli.train": FAIRSEQ_REMEDY}
"""What training imports, and the remedies."""
FAIRSEQ = ("fairseq-fixed", "ve-fairseq", "fairseq")  # packages that install the same files


def run(arguments: argparse.Namespace) -> int:
    print(f"agg-fairseq {__version__}, Python {platform.python_version()}")
    found = {
        name: list(importlib.metadata.distributions(name=name))
        for name in ("torch", "numpy", *FAIRSEQ)
    }
    versions = {
        name: distributions[0].version for name, distributions in found.items() if distributions
    }
    print(*(f"{name} {version}" for name, version in versions.items()), sep="\n")
    broken = False
    for module, remedy in IMPORTED.items():
        try:
            importlib.import_module(module)
        except Exception as error:  # any is an answer here
            broken = True
            print(
                f"error: {module.partition('_')[0]} cannot be imported ({first_line(error)}); "
                f"{remedy}"
            )
    if len(both := [name for name in FAIRSEQ if name in versions]) > 1:
        print(
            f"note: {' and '.join(both)} install the same files; uninstall all of them, then "
            f"{FAIRSEQ_REMEDY}"
        )
    if [int(part) for part in versions.get("torch", "0.0").split(".")[:2]] >= [2, 6]:
        print("note: torch >= 2.6: train on several workers with --load-checkpoint-on-all-dp-ranks")
        print(
            "note: torch >= 2.6: pass --user-dir to fairseq-generate, which else opens no "
            "translation model"
        )
    if int(versions.get("numpy", "0").split(".")[0]) >= 2:
        print(
            "note: numpy >= 2: fairseq's --sample-break-mode eos (language models) fails; pip "
            "install 'numpy<2'"
        )
    print(f"training with fairseq: {'not ready' if broken else 'ready'}")
    return int(broken)
