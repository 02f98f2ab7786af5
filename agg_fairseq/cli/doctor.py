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
FAIRSEQ_DISTRIBUTIONS = ("fairseq-fixed", "ve-fairseq", "fairseq")  # of the same files


def run(arguments: argparse.Namespace) -> int:
    print(f"agg-fairseq {__version__}, Python {platform.python_version()}")
    versions = {}
    for name in ("torch", "numpy", *FAIRSEQ_DISTRIBUTIONS):
        for distribution in importlib.metadata.distributions(name=name):
            versions[name] = distribution.version
            print(name, versions[name])
            break
    broken = False
    for module, remedy in IMPORTED.items():
        try:
            importlib.import_module(module)
        except Exception as error:  # any is an answer here
            broken = True
            name = module.partition("_")[0]
            print(f"error: {name} cannot be imported ({first_line(error)}); {remedy}")
    both = [name for name in FAIRSEQ_DISTRIBUTIONS if name in versions]
    if len(both) > 1:
        same = f"note: {' and '.join(both)} install the same files"
        print(f"{same}; uninstall all of them, then {FAIRSEQ_REMEDY}")
    if "torch" in versions:
        print("note: train on several workers with --load-checkpoint-on-all-dp-ranks")
        print("note: pass --user-dir to fairseq-generate, which else opens no translation model")
    if int(versions.get("numpy", "0").split(".")[0]) >= 2:
        print("note: numpy >= 2: fairseq's --sample-break-mode eos fails; pip install 'numpy<2'")
    print(f"training with fairseq: {'not ready' if broken else 'ready'}")
    return int(broken)
