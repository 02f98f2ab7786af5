"""Adaptive gradient partial scaling: gates from a token's count in the training set (Yu et al. 2021, Eqs. 13–15)."""

from torch import Tensor

from .gates import Gates

VARIANTS = ("eq15", "algorithm1")
DEFAULT_MU1, DEFAULT_MU2 = 500.0, 20.0  # the paper's values for WikiText-103; for WMT14 it has 1500 and 400


def agps_gates(
    counts: Tensor, present: Tensor, rare: Tensor, *, mu1: float, mu2: float, variant: str = "eq15"
) -> Gates:
    """The gates of AGPS for a batch. They differ from 1 only on the rare tokens that are not a target in the batch.

    With `f1[k] = min(c[k] / μ1, 1)` and `f2[k] = min(c[k] / μ2, 1)`, the gate of such a token is

    - `f1` at positions whose target is not rare, in both variants;
    - at positions with another rare token as target, `f2` in Eq. 15, and `f1 + f2` in Algorithm 1 of the paper's
      appendix, which adds the second loss to the first.

    Args:
        counts: (V,) c, occurrences as a target in the training set.
        present: (V,) bool, the tokens that are a target in the batch.
        rare: (V,) bool, R.
        mu1: μ1 > 0, in occurrences; in the paper larger than the count of any rare token.
        mu2: μ2 > 0, in occurrences.
        variant: "eq15" or "algorithm1".

    Examples:
        >>> import torch
        >>> counts, present = torch.tensor([90, 8, 2]), torch.tensor([True, False, False])
        >>> gates = agps_gates(counts, present, torch.tensor([False, True, True]), mu1=10, mu2=4)
        >>> gates.at_common_targets(like=torch.ones(1)), gates.at_rare_targets(like=torch.ones(1))
        (tensor([1.0000, 0.8000, 0.2000]), tensor([1.0000, 1.0000, 0.5000]))
    """
    for name, mu in (("mu1", mu1), ("mu2", mu2)):
        if not mu > 0:
            raise ValueError(f"expected {name} above 0, got {mu}")
    if variant not in VARIANTS:
        raise ValueError(f"expected variant to be one of {', '.join(VARIANTS)}, got {variant!r}")
    c = counts.double()
    f1 = (c / mu1).clamp(max=1)
    if variant == "eq15":
        g2 = (c / mu2).clamp(max=1)
    else:  # Algorithm 1 computes f2 from counts that were clipped at μ1
        g2 = f1 + (c.clamp(max=mu1) / mu2).clamp(max=1)
    return Gates(rare, *(gate.masked_fill(present, 1.0).float() for gate in (f1, g2)))
