"""Everything that reproduce.sh runs: the tables and figures of the papers, and our own experiments on small models."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass

from . import agg, agps, cosreg, f2, language_models
from .cures import cures
from .experiment import Experiment
from .multi30k import multi30k

EXPERIMENTS: dict[str, Experiment] = {
    **agg.EXPERIMENTS,
    **agps.EXPERIMENTS,
    **f2.EXPERIMENTS,
    **cosreg.EXPERIMENTS,
}
"""Tables and figures, by the names that the command line takes."""


@dataclass(frozen=True)
class Entry:
    """One of our own experiments."""

    title: str  # in the list of all entries
    output: str  # default of --output
    build: Callable[..., list[Experiment]]  # its arguments are the options of the command line that it takes
    jobs: int = 1  # default of --jobs

    @property
    def options(self) -> set[str]:
        """Names of the options that it takes."""
        return set(inspect.signature(self.build).parameters)


OURS: dict[str, Entry] = {
    "demo": Entry(
        "plain likelihood, AGG, and AGG with a fixed bias on a small language model",
        "runs/demo",
        language_models.demo,
        jobs=min(2, len(os.sched_getaffinity(0))),  # a core each is faster than both for one after the other
    ),
    "objectives": Entry(
        "AGG and its variants, freezing, AGPS, CosReg and unlikelihood on a small language model",
        "runs/objectives",
        language_models.objectives,
    ),
    "f2": Entry(
        "the ordinary softmax and the factorized output layer on a small language model, with texts",
        "runs/f2-softmax",
        language_models.f2_softmax,
    ),
    "multi30k": Entry(
        "the objectives of the translation tables, AGG with a bias, and the factorized layer, on a small model",
        "runs/multi30k",
        multi30k,
    ),
    "cures": Entry(
        "every cure of degenerate embeddings, and what it costs, on a small language model", "runs/cures", cures
    ),
}
"""Our own experiments, by the names that the command line takes."""
