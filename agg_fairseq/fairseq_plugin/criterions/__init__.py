"""fairseq criterions, a file each. Importing this package registers them; `base.py` says what each
contributes."""

from fairseq.criterions import register_criterion as register  # noqa: F401 — fairseq's own, for other plug-ins

from . import (  # noqa: F401
    agg,
    agps,
    cosreg,
    f2_softmax,
    face,
    freeze_rare,
    mle,
    unlikelihood,
    unlikelihood_sequence,
)
from .base import LikelihoodCriterion, LikelihoodCriterionConfig

__all__ = ["LikelihoodCriterion", "LikelihoodCriterionConfig"]
