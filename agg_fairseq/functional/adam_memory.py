"""Predicts what Adam forgets of rare tokens, and what a larger β₂ gains, from counts alone
(docs/rule.md).

Two kinds of gradients reach row k of the output embedding: pulls, where k is the target, and
pushes, at all other positions. Adam divides both by √v, where v is a mean of squared gradients. A
pull is a part of the v that divides it; while the token is absent, v halves every h = log 2 / (1 −
β₂) updates, and pushes are divided by ever smaller numbers. Let a token appear in each update with
probability 1/N, independently of the others, let pulls have one size, and pushes be too small to
matter in v. Between appearances v^(−1/2) grows by β₂^(−1/2) ≈ 1 + (1 − β₂)/2 per update. Let B be
its mean over all updates, which scales the pushes, and A its mean just after appearances, which
scales the pulls. An appearance lowers it from B to A on average. In a steady state, growth and fall
balance, so that pushes are B/A times as strong, relative to pulls, as in the gradient:

    B (1 − β₂)/2 = (B − A)/N        so that        B/A = 1/(1 − x),    x = N (1 − β₂)/2

This is 1.5 for N = h, and grows without bound for rarer tokens, until their pushes matter in v.
"""

import math

import torch
from torch import Tensor

from .gates import whole_counts

FEWEST_OCCURRENCES = 4
"""Tokens with fewer occurrences are left out by the rule: they teach too little."""


def half_life(beta2: float) -> float:
    """log 2 / (1 − β₂), the number of updates in which Adam's second moment halves; β₂ in [0, 1)."""
    return math.log(2) / (1 - beta2)


def updates_per_appearance(counts: Tensor, tokens_per_update: float) -> Tensor:
    """N (V,) float64, the mean number of updates from one appearance of each token to the next, 1
    or more; infinite for tokens that never occur.

    A token that is a share p of the targets is absent from T random ones with probability exp(−p
    T).

    Args:
        counts: (V,) occurrences as a target in the training text.
        tokens_per_update: T, target tokens of an update.
    """
    counts = whole_counts(counts).double()
    return 1 / -torch.expm1(-counts / counts.sum() * tokens_per_update)


def forgotten(counts: Tensor, tokens_per_update: float, beta2: float) -> Tensor:
    """(V,) bool, the tokens of 4 occurrences or more for which N is more than the half-life."""
    absence = updates_per_appearance(counts, tokens_per_update)
    return (absence > half_life(beta2)) & (counts >= FEWEST_OCCURRENCES)


def forgetting(counts: Tensor, tokens_per_update: float, beta2: float) -> float:
    """G(β₂), in nats per target. A larger β₂ lowers the loss by about the difference of the two G.

        G(β₂) = Σ_k p[k] log(N[k] / h),    over the tokens that are `forgotten`, with p[k] their share of the targets

    Arguments as of `updates_per_appearance` and `half_life`.

    Examples:
        >>> counts = torch.tensor([9900, 100])  # the rarer token, 1% of the targets, appears once in 10.5 updates of 10
        >>> round(forgetting(counts, 10, beta2=0.8), 5)  # 0.01 log(10.508 / 3.466)
        0.01109
    """
    tokens = forgotten(counts, tokens_per_update, beta2)
    excess = (updates_per_appearance(counts, tokens_per_update)[tokens] / half_life(beta2)).log()
    return (excess @ counts[tokens].double()).item() / counts.sum().item()
