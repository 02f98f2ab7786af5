"""fairseq criterions, a file each. Importing this package registers them; `base.py` says what each
contributes."""

from fairseq.criterions import register_criterion as register  # noqa: F401 — fairseq's own, for other plug-ins

from . import (  # noqa: F401
    agg,
    agps,
    f2_softmax,
    face,
    freeze_rare,
    likelihood,
    unlikelihood_sequence,
)
from .base import GatedCriterion, GatedCriterionConfig

__all__ = ["GatedCriterion", "GatedCriterionConfig"]
