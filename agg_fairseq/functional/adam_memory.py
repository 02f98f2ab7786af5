"""What Adam's memory does to the row of a token that is rare: the ratio of pushes to pulls, and the β₂ that bounds it.

Two kinds of gradients reach row k of the output embedding: pulls, where k is the target, and pushes, at all other
positions. Adam divides both by √v, where v is a mean of squared gradients with a memory of 1/(1 − β₂) updates. Assume
that

1. the token appears in each update with probability 1/N, independently of the others;
2. all its pulls have one size, all its pushes another;
3. the pushes are too small to matter in v;
4. there is no momentum.

Between appearances v falls by β₂ per update, so that v^(−1/2) grows by β₂^(−1/2) ≈ 1 + (1 − β₂)/2. Let B be the mean of
v^(−1/2) over all updates, which scales the pushes, and A its mean just after appearances, which scales the pulls. An
appearance lowers it from B to A on average. In a steady state, growth and fall balance:

    B (1 − β₂)/2 = (B − A)/N        so that        B/A = 1/(1 − x),    x = N (1 − β₂)/2
"""


def least_beta2(updates_per_appearance: float) -> float:
    """The least β₂ for which B/A is at most 1/(1 − 0.1) = 1.11: 1 − 0.2/N, and at least 0.

    This is x = 0.1; in our trainings (docs/which-cure.md) nothing more was gained below 0.25. It is meant for the mean
    N of a group of tokens. Tokens that are rarer, or that come in bursts, need a larger one.

    Args:
        updates_per_appearance: N, above 0; infinity for a token that never appears, for which it is 1.

    Examples:
        >>> round(least_beta2(100), 6)
        0.998
    """
    return max(0.0, 1 - 0.2 / updates_per_appearance)
