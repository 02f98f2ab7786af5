"""Unlikelihood: tokens that should not follow, at each position (Welleck et al. 2020).

    L_UL = −Σ_i Σ_{c ∈ C_i} log(1 − P[i, c])

With `w[c] = P[c] / (1 − P[c])` on the candidates and `s = Σ_c w[c]`, its gradient into the logits of a position is

    dL/dz[k] = w[k]·1(k ∈ C) − s·P[k]

which is bounded, although w is not: for the likeliest token the two terms cancel. So the entry of that token is formed
as `P[c] (1 − Σ_{c' ≠ c} w[c'])`, and its `1 − P[c]` as the sum of the other probabilities. The cost is one gather and
one scatter over the candidates, besides the passes over P that the likelihood needs anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

SMALLEST_COMPLEMENT = 1e-30  # lower bound of `1 − P[c]`: it keeps α·w finite, and the penalty of a token below 70 nats


@dataclass(frozen=True)
class Candidates:
    """For each position, the tokens that should not follow. All positions of a sequence share a row."""

    tokens: Tensor  # (B, U) int64, the distinct tokens of each of B sequences, padded with any token
    since: Tensor  # (B, U) int64, the first step at which the token is a candidate; for padding one beyond the last
    steps: int  # T, so that position i is step `i % T` of sequence `i // T`

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """At positions (C,) of the flattened (B, T): tokens (C, U), and whether each is a candidate there (C, U)."""
        sequence = torch.div(positions, self.steps, rounding_mode="floor")
        return self.tokens[sequence], self.since[sequence] <= (positions % self.steps)[:, None]


@dataclass(frozen=True)
class Unlikelihood:
    """The penalty `weight · L_UL` over some candidates."""

    weight: float  # α >= 0
    candidates: Candidates
    spare_target: bool = True  # at the token level, the target is no candidate; at the sequence level it is

    def penalty(self, positions: Tensor, target: Tensor, probabilities: Tensor) -> Penalty:
        """Value and gradient at C `positions` (C,) of the flattened (B, T) with `target` (C,).

        The probabilities P (C, V) are changed temporarily, and restored.
        """
        tokens, is_candidate = self.candidates.at(positions)  # C x U
        if self.spare_target:
            is_candidate = is_candidate & (tokens != target[:, None])
        likeliest = probabilities.max(1, keepdim=True)  # C x 1
        # 1 − P of the likeliest token, which may be close to 0: the sum of all other probabilities has no cancellation.
        probabilities.scatter_(1, likeliest.indices, 0.0)
        others = probabilities.sum(1, keepdim=True)  # C x 1
        probabilities.scatter_(1, likeliest.indices, likeliest.values)
        p = probabilities.gather(1, tokens)  # C x U
        is_likeliest = tokens == likeliest.indices
        complement = torch.where(is_likeliest, others, 1 - p).clamp_(min=SMALLEST_COMPLEMENT)
        odds = (p / complement).masked_fill_(~is_candidate, 0.0)  # w
        return Penalty(
            value=-(complement.log() * is_candidate).sum(1),
            tokens=tokens,
            odds=odds,
            likeliest=likeliest.indices,
            at_likeliest=likeliest.values * (1 - odds.masked_fill(is_likeliest, 0.0).sum(1, keepdim=True)),
            has_likeliest=(is_likeliest & is_candidate).any(1, keepdim=True),
        )


class Penalty(NamedTuple):
    """The penalty at C positions, before its weight."""

    value: Tensor  # (C,) nats
    tokens: Tensor  # (C, U)
    odds: Tensor  # (C, U) w, 0 where a token is not a candidate
    likeliest: Tensor  # (C, 1) int64, the arg-max of P
    at_likeliest: Tensor  # (C, 1) the gradient into the logit of the arg-max, if that is a candidate
    has_likeliest: Tensor  # (C, 1) bool, whether the arg-max is a candidate

    def add_gradient_(self, residual: Tensor, at_likeliest: Tensor, weight: float) -> None:
        """Adds `weight · w` to the candidates of a gradient (C, V) that already holds `−weight · s·P`, in place.

        `at_likeliest` (C, 1) is the gradient of the other terms of the loss at the arg-max.
        """
        residual.scatter_add_(1, self.tokens, weight * self.odds)
        entry = torch.where(
            self.has_likeliest, at_likeliest + weight * self.at_likeliest, residual.gather(1, self.likeliest)
        )
        residual.scatter_(1, self.likeliest, entry)


def previous_tokens(target: Tensor, ignore_index: int) -> Candidates:
    """The candidates of the token level: the tokens that were targets (B, T) earlier in the same row, but no padding.

    In the code of Welleck et al. the candidates of one sequence leak into the other sequences of a batch.
    """
    batch, steps = target.shape
    ordered, order = target.sort(dim=1, stable=True)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    is_first &= ordered != ignore_index
    column = is_first.cumsum(1) - 1  # B x T, of a token in its row of candidates
    width = int(is_first.sum(1).max().clamp(min=1)) if target.numel() else 1
    tokens = target.new_zeros(batch, width)
    since = target.new_full((batch, width), steps)
    row = torch.arange(batch, device=target.device)[:, None].expand_as(ordered)[is_first]
    tokens[row, column[is_first]] = ordered[is_first]
    since[row, column[is_first]] = order[is_first] + 1
    return Candidates(tokens, since, steps)


def repeated_ngrams(tokens: Tensor, n: int) -> Tensor:
    """Which tokens (B, T) are part of an n-gram, n >= 1, that occurred earlier in the same row: (B, T) bool.

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


def given_tokens(tokens: Tensor, is_candidate: Tensor) -> Candidates:
    """One candidate or none at each position, from tokens (B, T) and bool (B, T)."""
    since = (~is_candidate).long()  # with one step, 1 is beyond the last
    return Candidates(tokens.reshape(-1, 1), since.reshape(-1, 1), steps=1)
