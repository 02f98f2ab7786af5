"""AlignSim: do the embeddings of a joined vocabulary reflect which words of two languages were aligned?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .groups import FrequencyGroups
from .isotropy import check_embeddings

BLOCK_COSINES = 2**23
"""Cosines held at a time: 64 MiB in float64."""

Progress = Callable[[Sequence[Tensor]], Iterable[Tensor]]
"""Yields the chunks of tokens that it is given, and may show the progress."""


@dataclass(frozen=True)
class LinkCounts:
    """Number of links of each source token to each target token in a word alignment, over a joined vocabulary.

    Args:
        source: (P,) int64 tokens of the source language.
        target: (P,) int64 tokens of the target language.
        count: (P,) positive; the counts of a pair that occurs more than once are added.
    """

    source: Tensor
    target: Tensor
    count: Tensor

    def tokens(self) -> Tensor:
        """The tokens that were ever linked (n,), ascending."""
        return torch.cat([self.source.unique(), self.target.unique()]).unique()


def align_sim(weight: Tensor, links: LinkCounts, *, temperature: float = 10.0, progress: Progress = iter) -> Tensor:
    """AlignSim_i = cos(a(i), â(i)): whether the nearest words of word i are those that i was aligned with.

    `â(i, j) = exp(τ·cos(w_i, w_j)) / Σ_k exp(τ·cos(w_i, w_k))` over all rows of W, row i included. `a(i, j)` is the
    number of links between i and j, in either direction: a link counts in a(source) and in a(target), and so twice in
    a(i) if both are i. Rows of zeros (padding) have no direction and are excluded, with their links.

    Computed in float64, a few rows of cosines at a time: O(V²·D) operations if all tokens were linked, and O(V·D + P)
    memory.

    Args:
        weight: W (V, D) embeddings.
        links: between tokens below V.
        temperature: τ > 0; the larger, the more the nearest neighbors of a word count.
        progress: receives the chunks of rows and yields them, such as tqdm.

    Returns:
        (V,) float64 in [0, 1]; NaN for a token that was never linked.

    Raises:
        ValueError: `weight` is not a matrix or not finite; `links` are empty, of different lengths, beyond V or not
            positive; or τ is not positive.

    Reference: Yu et al. (2021), Sec. 4.1.2, Eqs. 16–17.
    """
    w = check_embeddings(weight).double()
    size = len(w)
    _check(links, size, temperature)
    norms = w.norm(dim=1)
    directions = w / norms.clamp(min=torch.finfo(w.dtype).tiny)[:, None]  # V x D, zeros stay zero
    has_direction = norms > 0  # V
    sides = [_Rows(links.source, links.target, size), _Rows(links.target, links.source, size)]
    values = torch.full((size,), math.nan, dtype=torch.float64)
    for chunk in progress(links.tokens().split(max(1, BLOCK_COSINES // size))):
        cosines = directions[chunk] @ directions.t()  # C x V
        cosines[torch.arange(len(chunk)), chunk] = 1
        inferred = _softmax(cosines, temperature)  # C x V, â
        inferred[:, ~has_direction] = 0
        # The entries of a(i) that are not zero, of both directions: `codes` are row · V + column of a matrix (C, V).
        codes, counts = zip(*(side.labels(chunk, links.count) for side in sides), strict=True)
        codes, entry = torch.cat(codes).unique(return_inverse=True)
        row, column = codes // size, codes % size
        labels = _sums(entry, torch.cat(counts), len(codes)) * has_direction[column]
        dot = _sums(row, labels * inferred[row, column], len(chunk))
        length = _sums(row, labels.square(), len(chunk)).sqrt()
        values[chunk] = dot / (length * inferred.norm(dim=1))  # Eq. 17
    values[~has_direction] = math.nan
    return values.clamp(max=1)


def orthogonal_align_sim(links: LinkCounts, vocabulary: int, *, temperature: float = 10.0) -> Tensor:
    """AlignSim_i of orthogonal embeddings, which carry no information: the baseline that `align_sim` is compared with.

    It is high for words that are the same in both languages, since these are mostly aligned with themselves, whatever
    the embeddings. In closed form, with O(P) operations apart from sorting:
    `(e^−τ·Σ_j a(i, j) + (1 − e^−τ)·a(i, i)) / (‖a(i)‖·√(1 + (V − 1)·e^−2τ))`.

    Args:
        links: between tokens below V.
        vocabulary: V.
        temperature: τ > 0.

    Returns:
        (V,) float64, as `align_sim` of an identity matrix.

    Raises:
        ValueError: as `align_sim`.
    """
    _check(links, vocabulary, temperature)
    codes = torch.cat([links.source * vocabulary + links.target, links.target * vocabulary + links.source])
    codes, entry = codes.unique(return_inverse=True)
    labels = _sums(entry, links.count.repeat(2), len(codes))
    row, column = codes // vocabulary, codes % vocabulary
    others = math.exp(-temperature)  # â of every other word, where the word itself has 1
    dot = _sums(row, torch.where(row == column, labels, labels * others), vocabulary)
    length = _sums(row, labels.square(), vocabulary).sqrt()  # 0, and so the result NaN, where there is no link
    return (dot / (length * math.sqrt(1 + (vocabulary - 1) * others**2))).clamp(max=1)


def group_means(values: Tensor, groups: FrequencyGroups) -> dict[str, float | None]:
    """The mean of the values (V,) that are not NaN, in each group of tokens, and over all tokens as `total`.

    Returns:
        Mean by group; None where there is no such value.
    """
    of_group = {name: values[groups.members(name)] for name in groups.names} | {"total": values}
    return {name: found.nanmean().item() if not found.isnan().all() else None for name, found in of_group.items()}


def _check(links: LinkCounts, vocabulary: int, temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise ValueError(f"expected a positive temperature, got {temperature}")
    shapes = [tuple(one.shape) for one in (links.source, links.target, links.count)]
    if len(shapes[0]) != 1 or len(set(shapes)) != 1 or shapes[0] == (0,):
        raise ValueError(f"expected source, target and count of the same shape (P,) with P >= 1, got {shapes}")
    tokens = torch.stack([links.source, links.target])
    if tokens.min() < 0 or tokens.max() >= vocabulary:
        raise ValueError(f"expected tokens of 0 to {vocabulary - 1}, got {int(tokens.min())} to {int(tokens.max())}")
    if not (links.count > 0).all():
        raise ValueError(f"expected positive counts, got {links.count.min().item()}")


def _softmax(cosines: Tensor, temperature: float) -> Tensor:
    """Eq. 16 for some rows (C, V), in place, up to a factor: exp(τ·cos) / exp(τ).

    Eq. 17 does not depend on the scale of â(i), and no cosine exceeds that of the word with itself, 1. So nothing
    overflows, and the sum of a row is at least 1.
    """
    return cosines.sub_(1).clamp_(max=0).mul_(temperature).exp_()


def _sums(index: Tensor, values: Tensor, size: int) -> Tensor:
    """The sum of the values (n,) at each index (n,): (size,) float64."""
    return torch.zeros(size, dtype=torch.float64).index_add_(0, index, values.double())


class _Rows:
    """The links (P,) sorted by the tokens of one side, so that the links of a chunk of tokens are a slice."""

    def __init__(self, row: Tensor, column: Tensor, vocabulary: int) -> None:
        self.row, self.column, self.vocabulary = row, column, vocabulary
        self.order = row.argsort()
        self.ends = row.bincount(minlength=vocabulary).cumsum(0)  # V

    def labels(self, chunk: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """The links of the tokens `chunk` (C,), each as row · V + column of a matrix (C, V), and their counts.

        `chunk` is ascending, and no token between its first and last that is not in it has a link.
        """
        first, last = int(chunk[0]), int(chunk[-1])
        found = self.order[self.ends[first - 1] if first else 0 : self.ends[last]]
        row = torch.searchsorted(chunk, self.row[found])
        return row * self.vocabulary + self.column[found], count[found]
