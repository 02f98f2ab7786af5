"""The options of every criterion. Those of the terms follow from the table in `functional/terms.py`."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from typing import Any

from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from ..fairseq_glue.registries import option
from ..functional.terms import EMBEDDING_TERMS, POSITION_TERMS

REMOVED = {"dispersion_gamma": argparse.SUPPRESS, "isoscore_gamma": argparse.SUPPRESS}
"""Options of version 0.2.0. fairseq-validate refuses a checkpoint whose configuration has an option that is unknown."""


def weights(name: str, options: Mapping[str, str]) -> type:
    """A dataclass with a weight for each option, 0 by default; `options` has their help by their names."""
    fields = [(weight, float, option(0.0, text)) for weight, text in options.items()]
    return make_dataclass(name, fields, bases=(FairseqDataclass,))


EmbeddingTermWeights = weights("EmbeddingTermWeights", {term.option: term.help for term in EMBEDDING_TERMS} | REMOVED)
PositionTermWeights = weights("PositionTermWeights", {term.option: term.help for term in POSITION_TERMS})


@dataclass
class CriterionConfig(EmbeddingTermWeights):  # type: ignore[misc, valid-type]
    """Options of every criterion of this package."""

    label_smoothing: float = option(0.0, "epsilon of label smoothing in [0, 1), as in label_smoothed_cross_entropy")
    center_output: bool = option(
        False,
        "after each step of the optimizer, subtract the mean output embedding from all output embeddings (Stollenwerk "
        "et al. 2026)",
    )
    embedding_stats_interval: int = option(
        0,
        "interval, in updates, of logging the statistics of the output embedding: isotropy I(W), mean_cosine S(W), "
        "both of W minus its mean row (…_centered), mean_share and isoscore; 0: only at validation, where they are "
        "always logged",
    )
    sentence_avg: bool = II("optimization.sentence_avg")
    train_subset: str = II("dataset.train_subset")
    update_ordered_indices_seed: bool = II("dataset.update_ordered_indices_seed")
    ddp_backend: str = II("distributed_training.ddp_backend")


@dataclass
class LikelihoodCriterionConfig(PositionTermWeights, CriterionConfig):  # type: ignore[misc, valid-type]
    """Options of every criterion that works on one softmax over all tokens."""


def check_options(cfg: CriterionConfig) -> None:
    """Raises ValueError if an option that the objective does not check is out of its range."""
    check_at_least(0, cfg, "embedding_stats_interval", "a number of updates or 0 (only at validation)")
    for name in REMOVED:
        if getattr(cfg, name):
            raise ValueError(f"found {flag(name)} {getattr(cfg, name)}, which version 0.2.0 had; drop it")


def check_at_least(least: int, cfg: Any, name: str, expected: str) -> None:
    """Raises ValueError if an option is below `least`; `expected` says what it is to be."""
    if getattr(cfg, name) < least:
        raise ValueError(f"{flag(name)}: expected {expected}, got {getattr(cfg, name)}")


def flag(name: str) -> str:
    """The name of an option on the command line."""
    return f"--{name.replace('_', '-')}"
