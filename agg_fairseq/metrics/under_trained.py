"""Which tokens a model has hardly learned, from its embeddings alone."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from .isotropy import check_embeddings, row_chunks


def unused_distance(weight: Tensor, unused: Sequence[int]) -> Tensor:
    """1 − cos(w_k, Σ_u w_u) over the unused tokens u ≠ k: (V,) float64 in [0, 2]; 0 for a row of zeros.

    A small distance means similar to the unused tokens. The softmax pushes the rows of all tokens that are never a
    target the same way, away from the features, so that they end up side by side. A row that has moved elsewhere
    belongs to a token that the model has learned.

    Land and Bartolo also remove the first principal direction of all rows, in case they share a constant part. Where
    many tokens are rare, that is the very direction in which unused rows lie: without it, unused and seen tokens are
    confused (docs/tokens.md), so it is kept, as in the program that they published.

    Args:
        weight: (V, D) embeddings that are the output layer too.
        unused: rows that are known to be of unused tokens, one or more; each is compared with the others.

    Reference: Land and Bartolo (2024), Sec. 2.
    """
    w = check_embeddings(weight)
    known = w[list(unused)].double()
    total = known.sum(0)
    distances = torch.cat([1 - cosine_similarity(rows, total, dim=1) for rows in row_chunks(w)])
    if len(known) > 1:
        distances[list(unused)] = 1 - cosine_similarity(known, total - known, dim=1)
    return distances.clamp(min=0).masked_fill(~w.any(dim=1), 0)
