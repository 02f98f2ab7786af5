"""Objectives and an output layer against degenerate token embeddings, as a fairseq plug-in and in
plain PyTorch.

Importing this package imports neither fairseq nor anything else. `register`, which the folder that
`agg-fairseq user-dir` prints calls, adds all of it to fairseq, in whatever order the two are
imported. (Where fairseq is imported already, importing the package calls `register`, so that its
own folder is a `--user-dir`.)
"""

import sys

__version__ = "0.3.0.dev0"


def register() -> None:
    """Adds the criterions, models and optimizers to fairseq's registries; another call does
    nothing."""
    from .checkpoints.fairseq_checkpoint import allow_plain_values
    from .fairseq_plugin import criterions, models, optimizers  # noqa: F401 — importing registers

    allow_plain_values()


if sys.modules.get("fairseq"):
    register()
