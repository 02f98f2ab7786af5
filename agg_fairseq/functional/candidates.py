"""Unlikelihood: tokens that should not follow, at each position (Welleck et al. 2020)."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Candidates:
    """For each position, the tokens that should not follow."""

    # (B, U) int64, the distinct tokens of each of B sequences, padded with any token
    tokens: Tensor
    # (B, U) int64, the first step at which the token is a candidate; T or more for padding
    since: Tensor
    steps: int  # T, so that position i is step `i % T` of sequence `i // T`

    def at(self, positions: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (C, U), and which are candidates, at positions (C,); the target is none."""
        sequence = torch.div(positions, self.steps, rounding_mode="floor")
        tokens = self.tokens[sequence]
        is_candidate = self.since[sequence] <= (positions % self.steps)[:, None]
        return tokens, is_candidate & (tokens != target[:, None])


def previous_tokens(target: Tensor, ignore_index: int) -> Candidates:
    """The candidates of the token level: the tokens that were targets (B, T) earlier in the same
    row, but no padding. (In the code of Welleck et al. those of a sequence leak into others.)"""
    if target.dim() != 2:
        found = tuple(target.shape)
        raise ValueError(f"expected targets (B, T) of sequences, for ul_alpha, got {found}")
    batch, steps = target.shape
    ordered, order = target.sort(dim=1, stable=True)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    is_first &= ordered != ignore_index
    # Each token goes to a column of its own, its repetitions to the last one, which is dropped.
    column = (is_first.cumsum(1) - 1).masked_fill(~is_first, steps)  # B x T
    tokens = target.new_zeros(batch, steps + 1).scatter_(1, column, ordered)
    since = target.new_full((batch, steps + 1), steps).scatter_(1, column, order + 1)
    tokens, since = tokens[:, :steps], since[:, :steps]
    return Candidates(tokens, since, steps)


def repeated_ngrams(tokens: Tensor, n: int) -> Tensor:
    """The tokens (B, T) that are part of an n-gram that occurred earlier in the same row, (B, T)
    bool; n >= 1.

    The sequence level of Welleck et al. has n = 4; their code omits the last n-gram of a row.
    """
    repeated = torch.zeros_like(tokens, dtype=torch.bool)
    for row, line in enumerate(tokens.tolist()):
        seen: set[tuple[int, ...]] = set()
        for start in range(len(line) - n + 1):
            ngram = tuple(line[start : start + n])
            if ngram in seen:
                repeated[row, start : start + n] = True
            seen.add(ngram)
    return repeated
