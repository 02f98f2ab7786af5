"""Assigning tokens to frequency classes: MefMax (Choi et al. 2020, Algorithm 1) and its two
ablations.

Tokens are sorted by decreasing count, equal counts by index, and a class is a contiguous part of
that order. Cut-off k of K comes after the first token at which the cumulative count exceeds k/K of
the total. MefMax tries every K up to 1 / p_max and keeps the one of the highest mean efficiency
(Eq. 5).
"""

import numpy as np
import torch
from torch import Tensor

from ..functional import whole_counts

ASSIGNMENTS = ("mefmax", "equal-frequency", "equal-token")


def mefmax(counts: Tensor) -> Tensor:
    """The classes of the highest mean efficiency among those that cut the frequency mass into equal
    parts, in K log V operations for each number K of them.

    Args:
        counts: (V,) occurrences in the training set, not negative and not all zero. A token that
            does not occur is in the last class, as the rarest.

    Returns:
        (V,) int64 in [0, C): the class of each token, 0 the most frequent. No class is empty.

    Examples:
        >>> mefmax(torch.tensor([1, 10, 1, 1, 10, 10, 1, 1, 1]))
        tensor([2, 0, 2, 2, 0, 1, 2, 2, 2])

    Reference: Choi et al. (2020), Sec. 3.3, Eqs. 5–6, Algorithm 1. Of equal efficiencies the
    smallest number of classes is kept, as in the paper.
    """
    ranked, cumulative = _ranked(counts)
    p = np.diff(cumulative, prepend=0) / cumulative[-1]  # V
    p_log_p = p * np.log(p, out=np.zeros_like(p), where=p > 0)
    sums = [np.concatenate([[0.0], np.cumsum(values)]) for values in (p, p_log_p)]  # V + 1 each
    best = _equal_mass_ends(cumulative, 1)
    best_efficiency = _mean_efficiency(best, *sums)
    for number in range(2, int(cumulative[-1] // cumulative[0]) + 1):
        ends = _equal_mass_ends(cumulative, number)
        efficiency = _mean_efficiency(ends, *sums)
        if efficiency > best_efficiency + 1e-12:  # beyond rounding: ties go to fewer classes
            best, best_efficiency = ends, efficiency
    return _classes(ranked, best)


def equal_frequency(counts: Tensor, number: int) -> Tensor:
    """`fixed-eq-freq`: a fixed number of classes, each of about the same frequency mass.

    Args:
        counts: as for `mefmax`, which says what is returned.
        number: C, from 1 to ⌊1 / p_max⌋; with more, one frequent token would have the mass of
            several classes. ValueError if the last class would be empty.

    Reference: Choi et al. (2020), Sec. 4.4.1, as for `equal_token`.
    """
    ranked, cumulative = _ranked(counts)
    most = int(cumulative[-1] // cumulative[0])
    ends = _equal_mass_ends(cumulative, min(max(number, 1), most))
    if len(ends) != number:
        raise ValueError(
            f"equal-frequency: expected 1 to {most} classes, none of them empty, got {number}"
        )
    return _classes(ranked, ends)


def equal_token(counts: Tensor, number: int) -> Tensor:
    """`fixed-eq-token`: a fixed number of classes, each of the same number of tokens, the larger
    ones first.

    Args:
        counts: as for `mefmax`, which says what is returned.
        number: C, from 1 to V.
    """
    ranked, _ = _ranked(counts)
    if not 1 <= number <= len(counts):
        raise ValueError(
            f"equal-token: expected 1 to {len(counts)} classes, one per token at most, got {number}"
        )
    return _classes(ranked, np.cumsum([len(part) for part in np.array_split(ranked, number)]))


def assign_classes(assignment: str, number: int, counts: Tensor) -> Tensor:
    """The classes by one of `ASSIGNMENTS`, from counts as `mefmax` takes them; `number`: C, or 0 for
    mefmax, which finds it itself."""
    if assignment == "mefmax":
        if number:
            raise ValueError(
                f"--f2-assignment mefmax: expected no --f2-classes, since it finds their number, "
                f"got {number}"
            )
        return mefmax(counts)
    assignments = {"equal-frequency": equal_frequency, "equal-token": equal_token}
    return assignments[assignment](counts, number)


def _mean_efficiency(ends: np.ndarray, p: np.ndarray, p_log_p: np.ndarray) -> float:
    """Eq. 5, in [0, 2]: the uniformity of the classes, plus the mean uniformity of the tokens
    within each.

    From where each class ends (C,), and the sums (V + 1,) of p and of p log p up to each token:
    from their differences follows the entropy of any contiguous part. A set of one member, and a
    class without an occurrence, have efficiency 1.
    """
    starts = np.concatenate([[0], ends[:-1]])
    mass, inner, sizes = p[ends] - p[starts], p_log_p[ends] - p_log_p[starts], ends - starts  # C
    occurs, several = mass > 0, sizes > 1
    log_mass = np.log(mass, out=np.zeros_like(mass), where=occurs)
    # With m the mass of a class, its entropy is −Σ (p/m) log(p/m) = log m − (1/m) Σ p log p.
    entropy = log_mass - np.divide(inner, mass, out=np.zeros_like(mass), where=occurs)
    within = np.where(occurs & several, np.maximum(entropy, 0) / np.log(np.maximum(sizes, 2)), 1.0)
    between = -(mass * log_mass).sum() / np.log(len(ends)) if len(ends) > 1 else 1.0
    return float(within.mean() + between)


def _ranked(counts: Tensor) -> tuple[Tensor, np.ndarray]:
    """Tokens by decreasing count (V,), and the cumulative counts along that order (V,)."""
    counts = whole_counts(counts).cpu()
    if counts.min() < 0 or not counts.any():
        raise ValueError("frequency classes: expected counts, none negative and not all zero")
    ranked = torch.argsort(counts, descending=True, stable=True)
    return ranked, counts[ranked].cumsum(0).numpy()


def _equal_mass_ends(cumulative: np.ndarray, number: int) -> np.ndarray:
    """Where each class ends (C,). Since no token has more than 1/K of the mass, each cut-off comes
    after the one before it. Only the last class may be empty, and it is dropped."""
    limits = np.arange(1, number) * cumulative[-1] // number
    ends = np.searchsorted(cumulative, limits, side="right") + 1
    size = len(cumulative)
    return ends if number > 1 and ends[-1] == size else np.append(ends, size)


def _classes(ranked: Tensor, ends: np.ndarray) -> Tensor:
    """The class of each token (V,), from the tokens in order of rank (V,) and where each class ends
    (C,)."""
    places = np.searchsorted(ends, np.arange(len(ranked)), side="right")
    return torch.empty_like(ranked).scatter_(0, ranked, torch.from_numpy(places))
