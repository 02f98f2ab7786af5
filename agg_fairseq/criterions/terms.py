"""The terms that every criterion takes, each with its own weight; 0 leaves a term out, also of the log.

    term                          option               logged             formed
    token-level unlikelihood      --ul-alpha           ul_loss            by the operation, at each position
    z-loss, squared logsumexp     --z-loss             z_loss             by the operation, at each position
    adversarial likelihood        --adv-epsilon        adv_loss           by the operation, in place of the likelihood
    cosine regularizer            --cosreg-gamma       cosreg             from W alone, once per update
    squared length of mean row    --mu-loss            mu_loss            from W alone, once per update
    sliced dispersion             --dispersion-gamma   dispersion         from W alone, once per update
    1 − IsoScore                  --isoscore-gamma     isoscore_penalty   from W alone, once per update

f2_softmax takes those of W alone. To add a term: its weight as an option of `LikelihoodCriterionConfig` (or of
`CriterionConfig`, if f2_softmax takes it too), and an entry in `POSITION_TERMS` or `EMBEDDING_TERMS`, from which its
range, its gradient and its place in the log follow. (A test tells if the report does not know the option yet.)
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from ..functional import (
    Unlikelihood,
    cosine_regularizer,
    isoscore_penalty,
    mean_row_penalty,
    previous_tokens,
    sliced_dispersion,
)


class PositionTerm(NamedTuple):
    """A term that `gated_cross_entropy` forms at each position, together with the likelihood."""

    option: str
    """Name of its weight in the config."""
    logged: str
    """Name in the log, per token, before the weight."""
    digits: int
    """Decimals in the log."""
    argument: str
    """The keyword argument of the operation that asks for the term, and the field of its output, (B, T)."""
    value: Callable[[float, Tensor, int], Any]
    """The value of that argument, from the weight, the targets (B, T) and the index of padding."""
    unit: float = math.log(2)
    """What the field is divided by in the log: log 2 from nats to bits."""
    in_validation: bool = True
    """Is it formed in validation too? Not if it is a way to train rather than a quantity to measure."""


class EmbeddingTerm(NamedTuple):
    """A term of the output embedding W alone."""

    option: str
    """Name of its weight in the config."""
    logged: str
    """Name in the log, before the weight."""
    digits: int
    """Decimals in the log."""
    value: Callable[[Tensor, int, int], Tensor]
    """A scalar, from W (V, D), the row of padding, which is no token, and the number of the update (validation: 0)."""


POSITION_TERMS = (
    PositionTerm(
        option="ul_alpha",
        logged="ul_loss",
        digits=3,
        argument="unlikelihood",
        value=lambda alpha, target, padding: Unlikelihood(alpha, previous_tokens(target, padding)),
    ),
    PositionTerm(
        option="z_loss",
        logged="z_loss",
        digits=3,
        argument="z_loss",
        value=lambda gamma, target, padding: gamma,
        unit=1.0,  # nats²
    ),
    PositionTerm(
        option="adv_epsilon",
        logged="adv_loss",
        digits=3,
        argument="adversarial",
        value=lambda epsilon, target, padding: epsilon,
        in_validation=False,
    ),
)
EMBEDDING_TERMS = (
    EmbeddingTerm(
        option="cosreg_gamma",
        logged="cosreg",
        digits=4,
        value=lambda weight, padding, update: cosine_regularizer(weight, ignore_index=padding),
    ),
    EmbeddingTerm(
        option="mu_loss",
        logged="mu_loss",
        digits=6,
        # The mean is that of all rows, padding too: see `functional/centering.py`.
        value=lambda weight, padding, update: mean_row_penalty(weight),
    ),
    EmbeddingTerm(
        option="dispersion_gamma",
        logged="dispersion",
        digits=4,
        # One great circle per update: the same on all workers, for all micro-batches, and after a resume. In validation
        # always that of update 0, so that its loss depends on the weights alone.
        value=lambda weight, padding, update: sliced_dispersion(weight, seed=update, ignore_index=padding),
    ),
    EmbeddingTerm(
        option="isoscore_gamma",
        logged="isoscore_penalty",
        digits=4,
        value=lambda weight, padding, update: isoscore_penalty(weight, ignore_index=padding),
    ),
)
