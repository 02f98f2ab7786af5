"""The terms that can be added to likelihood, each with its own weight: the one table of them.

    term                          weight         logged as   formed
    token-level unlikelihood      ul_alpha       ul_loss     by the operation, at each position
    z-loss, squared logsumexp     z_loss         z_loss      by the operation, at each position
    adversarial likelihood        adv_epsilon    adv_loss    by the operation, in place of the likelihood, in training
    cosine regularizer            cosreg_gamma   cosreg      from W alone, once per update
    squared length of mean row    mu_loss        mu_loss     from W alone, once per update

A weight of 0 leaves a term out. To add a term, write the function that computes it, and an entry of `POSITION_TERMS` or
`EMBEDDING_TERMS`. From the entry follow the option of every fairseq criterion with its help and its range, the argument
of `Objective`, the gradient, and the column in the log. (The criterion f2_softmax takes the terms of W alone.)
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from .centering import mean_row_penalty
from .cosine_regularizer import cosine_regularizer
from .unlikelihood import Unlikelihood, previous_tokens


class PositionTerm(NamedTuple):
    """A term that `gated_cross_entropy` forms at each position, together with the likelihood; gated as that is."""

    option: str  # name of its weight
    help: str  # what the weight does, for the command line
    logged: str  # name in the log, before the weight: a mean over tokens
    digits: int  # decimals in the log
    argument: str  # of the operation, which asks for the term; and the field of its output, (B, T)
    value: Callable[[float, Tensor, int], Any]  # of the argument, from weight, targets (B, T) and ignored target
    unit: float = math.log(2)  # what the field is divided by in the log: log 2 from nats to bits
    in_validation: bool = True  # is it formed in validation too? Not if it is a way to train rather than a measure


class EmbeddingTerm(NamedTuple):
    """A term of the output embedding W alone, with fields as above. It has no positions, and is not gated."""

    option: str
    help: str
    logged: str
    digits: int
    value: Callable[[Tensor, int | None], Tensor]  # a scalar, from W (V, D) and the row of padding, if there is one


POSITION_TERMS = (
    PositionTerm(
        option="ul_alpha",
        help="weight of the unlikelihood of tokens seen earlier in their sequence (Welleck et al. 2020: 1.0); 0: none",
        logged="ul_loss",
        digits=3,
        argument="unlikelihood",
        value=lambda alpha, target, ignored: Unlikelihood(alpha, previous_tokens(target, ignored)),
    ),
    PositionTerm(
        option="z_loss",
        help="weight of the mean squared logsumexp of the logits (Chowdhery et al. 2022: 1e-4); 0: none",
        logged="z_loss",
        digits=3,
        argument="z_loss",
        value=lambda gamma, target, ignored: gamma,
        unit=1.0,  # nats²
    ),
    PositionTerm(
        option="adv_epsilon",
        help="adversarial training: lower the logit of the target by this share of the product of the norms of its "
        "embedding and of the features (Wang et al. 2019: 0.005, in their fine-tuning 0.028); 0: none",
        logged="adv_loss",
        digits=3,
        argument="adversarial",
        value=lambda epsilon, target, ignored: epsilon,
        in_validation=False,
    ),
)
EMBEDDING_TERMS = (
    EmbeddingTerm(
        option="cosreg_gamma",
        help="weight of the mean cosine between output embeddings (Gao et al. 2019: 1.0); 0: none",
        logged="cosreg",
        digits=4,
        value=lambda weight, padding: cosine_regularizer(weight, ignore_index=padding),
    ),
    EmbeddingTerm(
        option="mu_loss",
        help="weight of the squared length of the mean output embedding (Stollenwerk et al. 2026); 0: none",
        logged="mu_loss",
        digits=6,
        value=lambda weight, padding: mean_row_penalty(weight),  # of all rows, padding too: see `centering.py`
    ),
)
TERMS = (*POSITION_TERMS, *EMBEDDING_TERMS)
