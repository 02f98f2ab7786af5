"""How well the embeddings of a joined vocabulary know which words of two languages were aligned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .embeddings import check_embeddings
from .groups import FrequencyGroups

BLOCK_COSINES = 2**23

Progress = Callable[[Sequence[Tensor]], Iterable[Tensor]]
"""Passes on the chunks of tokens that it is given, and may show how far they are."""


@dataclass(frozen=True)
class LinkCounts:
    """How often a source token and a target token were linked by a word alignment, over a joined vocabulary.

    Args:
        source: (P,) int64 tokens of the source language.
        target: (P,) int64 tokens of the target language.
        count: (P,) positive; where a pair comes more than once, its counts add up.
    """

    source: Tensor
    target: Tensor
    count: Tensor

    def tokens(self) -> Tensor:
        """All tokens that were ever linked, once each, ascending."""
        return torch.cat([self.source.unique(), self.target.unique()]).unique()


def align_sim(weight: Tensor, links: LinkCounts, *, temperature: float = 10.0, progress: Progress = iter) -> Tensor:
    """AlignSim_i = cos(a(i), â(i)): whether the nearest words of word i are those that it was aligned with.

    `â(i, j) = exp(τ·cos(w_i, w_j)) / Σ_k exp(τ·cos(w_i, w_k))` over all rows of W, row i among them. `a(i, j)` is how
    often i and j were linked, whichever of them was in the source: a link counts in a(source) and in a(target), and so
    twice in a(i) where both are i. Rows of zeros (padding) have no direction and are left out, with their links.

    Computed in float64 and a few rows of cosines at a time: O(V²·D) operations where all tokens were linked, and
    O(V·D + P) memory.

    Args:
        weight: W (V, D) embeddings.
        links: between tokens below V.
        temperature: τ > 0; the larger, the more a word's nearest neighbors count.
        progress: is given the chunks of rows, and passes them on; such as tqdm.

    Returns:
        (V,) float64 in [0, 1]; NaN for a token that was never linked.

    Raises:
        ValueError: `weight` is no matrix or not finite; `links` are none, of different lengths, beyond V or not
            positive; or τ is not.

    Reference: Yu et al. (2021), Sec. 4.1.2, Eqs. 16–17.
    """
    w = check_embeddings(weight).double()
    _check(links, len(w), temperature)
    norms = w.norm(dim=1)
    directions = w / norms.clamp(min=torch.finfo(w.dtype).tiny)[:, None]  # V x D, zeros stay

    def similar(chunk: Tensor) -> Tensor:
        cosines = directions[chunk] @ directions.t()
        cosines[torch.arange(len(chunk)), chunk] = 1
        return _softmax(cosines, temperature)

    return _cosines(links, similar, norms > 0, progress)


def orthogonal_align_sim(links: LinkCounts, vocabulary: int, *, temperature: float = 10.0) -> Tensor:
    """AlignSim_i of embeddings that know nothing: every word at right angles to all others.

    What `align_sim` is to be compared with: it is high for words that are the same in both languages, whose label is
    for the most part the word itself, whatever the embeddings. In closed form, of O(P) operations but for sorting:
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
    others = math.exp(-temperature)  # of 1 for the word itself
    dot = _sums(row, torch.where(row == column, labels, labels * others), vocabulary)
    length = _sums(row, labels.square(), vocabulary).sqrt()  # 0, and so NaN, where there is no link
    return (dot / (length * math.sqrt(1 + (vocabulary - 1) * others**2))).clamp(max=1)


def group_means(values: Tensor, groups: FrequencyGroups) -> dict[str, float | None]:
    """The mean of the values (V,) that are not NaN, in each group of tokens, and over all tokens as `total`.

    Returns:
        By group; None where there is no such value.
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
    """Eq. 16 of some rows (C, V), in place and up to a factor: exp(τ·cos) / exp(τ).

    Eq. 17 does not depend on the scale of â(i), and no cosine is above the word's with itself, 1. So nothing
    overflows, and the sum of a row is at least 1.
    """
    return cosines.sub_(1).clamp_(max=0).mul_(temperature).exp_()


def _cosines(links: LinkCounts, similar: Callable[[Tensor], Tensor], kept: Tensor, progress: Progress) -> Tensor:
    """Eq. 17: (V,) cosines between a(i) and â(i), of which `similar` gives rows (C, V), over the kept (V,) tokens."""
    size = len(kept)
    values = torch.full((size,), math.nan, dtype=torch.float64)
    sides = [_Rows(links.source, links.target, size), _Rows(links.target, links.source, size)]
    for chunk in progress(links.tokens().split(max(1, BLOCK_COSINES // size))):
        inferred = similar(chunk)
        inferred[:, ~kept] = 0
        codes, counts = zip(*(side.labels(chunk, links.count) for side in sides), strict=True)
        codes, entry = torch.cat(codes).unique(return_inverse=True)
        row, column = codes // size, codes % size
        labels = _sums(entry, torch.cat(counts), len(codes)) * kept[column]
        dot = _sums(row, labels * inferred[row, column], len(chunk))
        length = _sums(row, labels.square(), len(chunk)).sqrt()
        values[chunk] = dot / (length * inferred.norm(dim=1))
    values[~kept] = math.nan
    return values.clamp(max=1)


def _sums(index: Tensor, values: Tensor, size: int) -> Tensor:
    """(size,) float64: the sum of the values at each index."""
    return torch.zeros(size, dtype=torch.float64).index_add_(0, index, values.double())


class _Rows:
    """The links (P,) in order of one side's tokens, so that those of a chunk of tokens are a slice."""

    def __init__(self, row: Tensor, column: Tensor, vocabulary: int) -> None:
        self.row, self.column, self.vocabulary = row, column, vocabulary
        self.order = row.argsort()
        self.ends = row.bincount(minlength=vocabulary).cumsum(0)  # V

    def labels(self, chunk: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """The links of the tokens `chunk` (C,), ascending and none between them linked, and their counts.

        Each as row · V + column, of a matrix (C, V).
        """
        first, last = int(chunk[0]), int(chunk[-1])
        found = self.order[self.ends[first - 1] if first else 0 : self.ends[last]]
        row = torch.searchsorted(chunk, self.row[found])
        return row * self.vocabulary + self.column[found], count[found]
