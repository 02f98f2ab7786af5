"""Kinds of data parallel training in which a worker does not hold the whole model: refused, in one line.

A criterion here takes the output embedding outside the model's forward, where a shard is all that there is of it. A
criterion is built too late to say so: fairseq wraps the model first, and ends in a traceback where fairscale is not
installed. So importing this module makes fairseq's function that starts the wrapping ask first; of trainings with other
criterions it asks nothing.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from fairseq.criterions import CRITERION_REGISTRY

from ..errors import fail

REFUSED = {
    "fully_sharded": "leaves each worker a part of the output embedding",
    "slowmo": "lets the weights of the workers drift apart",
}
WRAPPING = "fsdp_enable_wrap"
MODULES = ("fairseq.distributed", "fairseq_cli.train", "__main__")
"""Where fairseq's function stands, and where it may have been imported to before this package."""


def check_ddp_backend(backend: Any) -> None:
    """Refuses what the criterions are not made for.

    Args:
        backend: the value of --ddp-backend.

    Raises:
        ValueError: it is one of `REFUSED`.
    """
    if str(backend) in REFUSED:
        raise ValueError(
            f"found --ddp-backend {backend}, which {REFUSED[str(backend)]}; "
            "expected --ddp-backend pytorch_ddp or legacy_ddp"
        )


def _ask_before_wrapping() -> None:
    for module in filter(None, map(sys.modules.get, MODULES)):
        if hasattr(module, WRAPPING):
            setattr(module, WRAPPING, _asking(getattr(module, WRAPPING)))


def _asking(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def fsdp_enable_wrap(cfg: Any) -> Any:
        criterion = cfg._get_parent().criterion._name
        if _is_of_this_package(criterion):
            try:
                check_ddp_backend(cfg.ddp_backend)
            except ValueError as error:
                fail(f"--criterion {criterion}: {error}")
        return original(cfg)

    return fsdp_enable_wrap


def _is_of_this_package(criterion: str) -> bool:
    """By the name of its base: the folder may have been imported under another name before."""
    return any(base.__name__ == "LikelihoodCriterion" for base in CRITERION_REGISTRY[criterion].__mro__)


_ask_before_wrapping()
