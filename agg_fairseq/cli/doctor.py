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
FAIRSEQ = ("fairseq-fixed", "ve-fairseq", "fairseq")  # packages that install the same files


def run(arguments: argparse.Namespace) -> int:
    print(f"agg-fairseq {__version__}, Python {platform.python_version()}")
    versions: dict[str, str] = {}
    for name in ("torch", "numpy", *FAIRSEQ):
        for distribution in importlib.metadata.distributions(name=name):
            versions.setdefault(name, distribution.version)
    for name, version in versions.items():
        print(name, version)
    broken = False
    for module, remedy in IMPORTED.items():
        try:
            importlib.import_module(module)
        except Exception as error:  # any is an answer here
            broken = True
            name = module.partition("_")[0]
            print(f"error: {name} cannot be imported ({first_line(error)}); {remedy}")
    notes = []
    if len(both := [name for name in FAIRSEQ if name in versions]) > 1:
        notes.append(
            f"{' and '.join(both)} install the same files; uninstall all of them, then "
            f"{FAIRSEQ_REMEDY}"
        )
    if "torch" in versions:
        notes += [
            "train on several workers with --load-checkpoint-on-all-dp-ranks",
            "pass --user-dir to fairseq-generate, which else opens no translation model",
        ]
    if int(versions.get("numpy", "0").split(".")[0]) >= 2:
        notes.append(
            "numpy >= 2: fairseq's --sample-break-mode eos (language models) fails; pip install "
            "'numpy<2'"
        )
    for note in notes:
        print(f"note: {note}")
    print(f"training with fairseq: {'not ready' if broken else 'ready'}")
    return int(broken)
