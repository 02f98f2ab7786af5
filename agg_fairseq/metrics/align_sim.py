"""AlignSim: whether embeddings are similar for words of two languages that were aligned."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from .groups import FrequencyGroups

TEMPERATURE = 10.0  # τ of Eq. 16
BLOCK_COSINES = 2**23  # cosines held at a time: 32 MiB in float32


@dataclass(frozen=True)
class LinkCounts:
    """Numbers of links between pairs of tokens of a joined vocabulary in a word alignment."""

    source: Tensor  # (P,) int64 tokens of the source language
    target: Tensor  # (P,) int64 tokens of the target language
    count: Tensor  # (P,) positive; the counts of a pair that occurs more than once are added

    def tokens(self) -> Tensor:
        """The tokens that were ever linked (n,), ascending."""
        return torch.cat([self.source, self.target]).unique()

    def labels(self, vocabulary: int) -> Tensor:
        """The matrix a (V, V), float64 and sparse: `a(i, j)` is the number of links between i and j
        in either direction, so a link of i to itself counts twice."""
        forth = torch.stack([self.source, self.target])  # 2 x P
        labels = torch.sparse_coo_tensor(
            torch.cat([forth, forth.flip(0)], dim=1),
            self.count.double().repeat(2),
            (vocabulary, vocabulary),
            check_invariants=True,
        )
        return labels.coalesce()


def align_sim(weight: Tensor, links: LinkCounts) -> Tensor:
    """AlignSim_i = cos(a(i), â(i)) of each token i.

    `â(i, j) = exp(τ·cos(w_i, w_j)) / Σ_k exp(τ·cos(w_i, w_k))`, τ = 10, over all rows of W, row i
    included, and a(i) of `LinkCounts.labels`. Rows of zeros (padding) are excluded, with their
    links. O(V·D + P) memory and O(V²·D) time. float32, unless W is float64.

    Args:
        weight: W (V, D) embeddings.
        links: between tokens below V, at least one.

    Returns:
        (V,) float64 in [0, 1], on the device of W; NaN for a token that was never linked.

    Reference: Yu et al. (2021), Sec. 4.1.2, Eqs. 16–17.
    """
    w = weight.detach()
    w = w if w.dtype == torch.float64 else w.float()
    norms = torch.linalg.vector_norm(w, dim=1)
    is_zero = norms == 0  # V
    # √τ ŵ (V, D), whose products are τ cos; zeros stay zero
    scaled = w * (math.sqrt(TEMPERATURE) / norms.masked_fill(is_zero, math.inf))[:, None]
    labels = links.labels(len(w))
    (rows, columns), counts = labels.indices().to(w.device), labels.values().to(w.device)
    counts = counts.masked_fill(is_zero[rows] | is_zero[columns], 0)
    products, squares, lengths = torch.zeros(3, len(w), dtype=torch.float64, device=w.device)
    lengths.index_add_(0, rows, counts.square())
    tokens = links.tokens().to(w.device)
    chunks = tokens.split(max(1, BLOCK_COSINES // len(w)))
    for chunk in tqdm(chunks, "AlignSim", leave=False, disable=None):
        # Eq. 16 up to a factor, on which Eq. 17 does not depend; 1 at a row of zeros
        inferred = (scaled[chunk] @ scaled.t()).exp_()  # C x V
        inferred.scatter_(1, chunk[:, None], math.exp(TEMPERATURE))  # itself, without rounding
        # in blocks, since a sum of many float32 would lose digits
        norms_of_blocks = [torch.linalg.vector_norm(one, dim=1) for one in inferred.split(1024, 1)]
        squares[chunk] = torch.stack(norms_of_blocks).double().square().sum(0) - is_zero.sum()
        ends = torch.searchsorted(rows, torch.stack([chunk[0], chunk[-1] + 1]))
        part = slice(*ends.tolist())  # the labels are sorted by their rows
        chunk_values = inferred[torch.searchsorted(chunk, rows[part]), columns[part]]
        products.index_add_(0, rows[part], counts[part] * chunk_values)
    values = products / (lengths * squares).sqrt()  # Eq. 17; NaN without links
    return values.masked_fill(is_zero, math.nan).clamp(max=1)


def orthogonal_align_sim(links: LinkCounts, vocabulary: int) -> Tensor:
    """(V,) float64, `align_sim` of orthogonal embeddings, which carry no information, with V =
    `vocabulary`: `(e^−τ·Σ_j a(i, j) + (1 − e^−τ)·a(i, i)) / (‖a(i)‖·√(1 + (V − 1)·e^−2τ))`.

    It is high for words that are spelled the same in both languages.
    """
    labels = links.labels(vocabulary)
    (rows, columns), counts = labels.indices(), labels.values()
    others = math.exp(-TEMPERATURE)  # â of every other word, where the word itself has 1
    sums = torch.zeros(2, vocabulary, dtype=torch.float64)
    sums[0].index_add_(0, rows, torch.where(rows == columns, counts, counts * others))
    sums[1].index_add_(0, rows, counts.square())
    # NaN where there is no link, since the length is 0
    return (sums[0] / (sums[1].sqrt() * math.sqrt(1 + (vocabulary - 1) * others**2))).clamp(max=1)


def group_means(values: Tensor, groups: FrequencyGroups) -> dict[str, float | None]:
    """The mean of the values (V,) that are not NaN, by group and as `total`; None if there are
    none."""
    selected = {name: values[tokens] for name, tokens in groups.all_members().items()}
    means = {}
    for name, of_group in (selected | {"total": values}).items():
        mean = of_group.nanmean().item()  # NaN of nothing but NaN
        means[name] = None if math.isnan(mean) else mean
    return means
