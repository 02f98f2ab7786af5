"""Registering a criterion once, under however many names the folder is imported."""

from __future__ import annotations

from collections.abc import Callable

from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass

Criterion = type[FairseqCriterion]


def register(name: str, dataclass: type[FairseqDataclass]) -> Callable[[Criterion], Criterion]:
    """`fairseq.criterions.register_criterion`, but a second import of the same class is no error.

    The folder that `--user-dir` names may be a link, and so be imported under another name beside the installed
    package. The first registration stands.

    Raises:
        ValueError: the name is taken by another class.
    """

    def registered(cls: Criterion) -> Criterion:
        known = CRITERION_REGISTRY.get(name)
        if known is not None and known.__name__ == cls.__name__:
            return known
        return register_criterion(name, dataclass=dataclass)(cls)

    return registered
