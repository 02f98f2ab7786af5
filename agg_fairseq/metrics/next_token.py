"""Perplexity, distinct predictions and calibration per frequency group, accumulated over batches.

Every probability factors through the group of its token, as F²-Softmax factors it through a class:

    −log P[y]  =  −log P(g_y)  −  log(P[y] / P(g_y)),        P(g) = Σ_{k in g} P[k]

A constant on the logits of all tokens of a group changes the first part only (docs/evaluation.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..errors import UserError
from ..names import UNSEEN
from .groups import FrequencyGroups

CACHED_ELEMENTS, BLOCK_COLUMNS = 2**20, 4096
"""Of a CPU: numbers that are exponentiated at a time, and columns that are compared at a time."""
LEAST_PROBABILITY = 1e-30  # a probability of a group that has not underflowed


def chunk_rows(vocabulary: int) -> int:
    """The positions of a chunk of logits: 32 MiB, or more if W was read for too few."""
    return max(512, 2**23 // vocabulary)


class NextTokenStatistics:
    """Sufficient statistics of teacher-forced next-token prediction.

    Args:
        groups: the group of each of the V tokens of the vocabulary; G groups.
        keep_positions: keep what `fit_offsets` and `calibrated` need, 8·(G + 2) bytes per position.

    Examples:
        >>> statistics = NextTokenStatistics(FrequencyGroups(torch.tensor([0, 0, 1, 2])))
        >>> statistics.update(torch.zeros(5, 4), torch.tensor([0, 1, 0, 2, 3]))
        >>> measures = statistics.compute()
        >>> round(measures["perplexity"]["total"], 3), round(measures["within_perplexity"]["frequent"], 3)
        (4.0, 2.0)
    """

    def __init__(self, groups: FrequencyGroups, *, keep_positions: bool = False) -> None:
        self.groups = groups
        self.keep_positions = keep_positions
        # The column of each token: its group, or the last of G + 1 for a token in no group.
        self._columns = groups.group_ids.where(groups.group_ids >= 0, len(groups.names))  # V
        self._order = None
        runs, sizes = torch.unique_consecutive(self._columns, return_counts=True)
        if len(runs) > 8 * len(groups.names):
            self._order = self._columns.argsort(stable=True)  # the tokens group by group
            runs, sizes = torch.unique_consecutive(self._columns[self._order], return_counts=True)
        ends = sizes.cumsum(0)
        slices = map(slice, (ends - sizes).tolist(), ends.tolist())
        # The column of each run of tokens, in that order, which are of one group; slices, since views
        # of a block of numbers would keep it while the next one is computed.
        self._runs = list(zip(runs.tolist(), slices, strict=True))
        vocabulary = len(self._columns)
        self.tokens = 0  # the number of positions
        self.counts = torch.zeros(vocabulary, dtype=torch.int64)  # targets by token
        self._predicted = torch.zeros(vocabulary, dtype=torch.bool)
        # Sums in nats over the positions with that target: −log P[y] and −log P(g_y).
        self._nll, self._group_nll = torch.zeros(2, vocabulary, dtype=torch.float64)
        self._expected = torch.zeros(len(self.groups.names) + 1, dtype=torch.float64)  # Σ_i P_i(g)
        self._positions: list[tuple[Tensor, Tensor]] = []

    @classmethod
    def of(
        cls, chunks: Iterable[tuple[Tensor, Tensor]], groups: FrequencyGroups, **options: Any
    ) -> NextTokenStatistics:
        """The statistics of chunks of positions, each as `update` takes it."""
        statistics = cls(groups, **options)
        for logits, target in chunks:
            statistics.update(logits, target)
        return statistics

    def update(self, logits: Tensor, target: Tensor) -> None:
        """Adds positions: logits (N, V), or log P, and targets y (N,) int64.

        ValueError for other shapes.
        """
        if logits.shape != (target.numel(), len(self.counts)) or target.dim() != 1:
            found = f"{tuple(logits.shape)} and {tuple(target.shape)}"
            raise ValueError(f"expected (N, {len(self.counts)}) and (N,), got {found}")
        most, predicted = _largest(logits)
        gap = logits.gather(1, target[:, None]).squeeze(1).double() - most.double()
        others = torch.stack([gap, predicted.double(), target.double()], 1)  # N x 3
        parts = torch.cat([self._exponentials(logits, most), others], 1)
        sums, others = parts.cpu().tensor_split([-3], 1)  # at once, since this waits for a GPU
        gap, (predicted, target) = others[:, 0], others[:, 1:].long().unbind(1)
        top_probability = sums.sum(1).reciprocal()  # P of the predicted tokens
        group_probs = sums * top_probability[:, None]
        nll = -(gap + top_probability.log())
        group_log_probs = group_probs.log()  # N x (G + 1); of no tokens, −∞
        for column in self._columns.unique().tolist():
            small = (group_probs[:, column] < LEAST_PROBABILITY).nonzero().squeeze(1)
            if len(small):
                at = small.to(logits.device)
                rows = logits[at].double() - most[at, None].double()
                log_sums = rows.cpu()[:, self._columns == column].logsumexp(1)
                group_log_probs[small, column] = log_sums + top_probability[small].log()
        group_nll = -group_log_probs.gather(1, self._columns[target][:, None]).squeeze(1)
        self.tokens += len(target)
        self.counts.index_add_(0, target, torch.ones_like(target))
        self._predicted[predicted] = True
        self._nll.index_add_(0, target, nll)
        self._group_nll.index_add_(0, target, group_nll)
        self._expected += group_log_probs.exp().sum(0)
        if self.keep_positions:
            self._positions.append((group_log_probs, target.clone()))

    def compute(self) -> dict[str, dict[str, Any]]:
        """The measures that `columns.METRICS` defines, by group, and as `total` over all; None without
        targets of the group. Perplexities are infinite for a mean of 709 nats or more.

        Reference: Yu et al. (2022), Tables 1–3; but for E/O and the two parts of a perplexity, ours.
        """
        return {
            "perplexity": self._perplexity(self._nll),
            "group_perplexity": self._perplexity(self._group_nll),
            "within_perplexity": self._perplexity(self._nll - self._group_nll),
            "unique_predictions": self.group_sums(self._predicted.long()),
            "expected_over_observed": self._observed_ratios(self._expected),
        }

    def calibrated(self, offsets: Tensor) -> dict[str, dict[str, float | None]]:
        """`perplexity` and `expected_over_observed` with offsets (G,) in nats on the logits."""
        # log P'[y] = log P[y] + δ_{g_y} − log Σ_g P(g) exp δ_g
        (log_probs, target), shift = self._kept(), pad(offsets, (0, 1))
        gain = shift[self._columns[target]] - (log_probs + shift).logsumexp(1)  # N
        return {
            "perplexity": self._perplexity(self._nll.index_add(0, target, -gain)),
            "expected_over_observed": self._observed_ratios((log_probs + shift).softmax(1).sum(0)),
        }

    def frequencies_over_observed(self, counts: Tensor) -> dict[str, float | None]:
        """`expected_over_observed` of training frequencies, from counts (V,), at all positions."""
        shares = counts.double() / counts.sum()
        expected = torch.zeros_like(self._expected)
        return self._observed_ratios(expected.index_add(0, self._columns, self.tokens * shares))

    def fit_offsets(self) -> Tensor:
        """The offset (G,) of each group that makes the text most probable, in nats; that of the
        first group is 0. Tokens in no group, and those that training never saw, keep their logits.

        The mean of `−δ_{g_i} + log Σ_h P_i(h) exp δ_h` over the positions is convex in the offsets
        δ. With π_i(g) = P_i(g) exp δ_g / Σ_h P_i(h) exp δ_h, its gradient is the mean of `π_i(g) −
        1[g = g_i]`, and its Hessian the mean of `diag π_i − π_i π_iᵀ`.

        UserError for a group without targets, whose offset would be −∞, and if the fit fails, as of
        a model that has diverged.
        """
        from scipy.optimize import root

        (log_probs, target), names = self._kept(), self.groups.names
        observed = torch.bincount(self._columns[target], minlength=log_probs.size(1)).to(log_probs)
        observed /= len(target)
        fitted = [name for name in names if name != UNSEEN]
        for name, share in zip(fitted, observed.tolist(), strict=False):
            if not share:
                raise UserError(
                    f"found no {name} targets to fit an offset to; give a text with "
                    "some of each group"
                )
        free = slice(1, len(fitted))  # the others are not changed

        def gradient_and_hessian(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """(F,) and (F, F) of the mean loss in nats, in the F offsets that are free."""
            shifted = log_probs.clone()
            shifted[:, free] += torch.from_numpy(offsets)
            shares = shifted.softmax(1)[:, free]
            hessian = shares.mean(0).diag() - shares.t() @ shares / len(shares)
            return (shares.mean(0) - observed[free]).numpy(), hessian.numpy()

        start = observed.log() - log_probs.logsumexp(0)
        found = root(gradient_and_hessian, (start - start[0])[free], jac=True, tol=1e-12)
        if not abs(found.fun).max() < 1e-9:
            raise UserError(
                "found offsets that do not converge, or probabilities that are NaN or 0 everywhere; "
                "expected a model that has not diverged"
            )
        return pad(torch.from_numpy(found.x), (1, len(names) - len(fitted)))

    def _exponentials(self, logits: Tensor, most: Tensor) -> Tensor:
        """Σ_k exp(z_k − max z) over the tokens of each group: (N, G + 1) in float64."""
        rows = len(logits) if logits.is_cuda else max(1, CACHED_ELEMENTS // len(self._columns))
        dtype = torch.promote_types(logits.dtype, torch.float32)  # float16 overflows in the sums
        if self._order is not None:
            self._order = self._order.to(logits.device)
        found = logits.new_zeros(len(logits), len(self._expected), dtype=torch.float64)
        for start in range(0, len(logits), max(1, rows)):
            part = slice(start, start + rows)
            exponentials = (logits[part].to(dtype) - most[part, None]).exp_()
            if self._order is not None:
                exponentials = exponentials.index_select(1, self._order)
            for column, run in self._runs:
                found[part, column] += exponentials[:, run].sum(1)
        return found

    def _kept(self) -> tuple[Tensor, Tensor]:
        """log P(g) (N, G + 1) and targets (N,) of all positions."""
        log_probs, targets = zip(*self._positions, strict=True)
        return torch.cat(log_probs), torch.cat(targets)

    def _perplexity(self, nll: Tensor) -> dict[str, float | None]:
        """exp of the mean over the targets of each group, from sums (V,) in nats."""
        perplexities = self._target_means(self.group_sums(nll))
        for name, mean in perplexities.items():
            if mean is not None:
                perplexities[name] = math.inf if mean >= 709 else math.exp(mean)
        return perplexities

    def _observed_ratios(self, expected: Tensor) -> dict[str, float | None]:
        """Expected numbers (G + 1,) of tokens, divided by the numbers of targets."""
        by_group = dict(zip(self.groups.names, expected.tolist(), strict=False))
        return self._target_means(by_group | {"total": expected.sum().item()})

    def _target_means(self, sums: dict[str, float]) -> dict[str, float | None]:
        targets = self.group_sums(self.counts)
        means: dict[str, float | None] = {}
        for name, total in sums.items():
            means[name] = total / targets[name] if targets[name] else None
        return means

    def group_sums(self, values: Tensor) -> dict[str, Any]:
        """Sums of numbers (V,) over the tokens of each group, and over all as `total`: of `counts`,
        the number of targets."""
        by_column = values.new_zeros(len(self._expected)).index_add_(0, self._columns, values)
        sums = dict(zip(self.groups.names, by_column.tolist(), strict=False))
        return sums | {"total": values.sum().item()}


def _largest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest number of each row (N, V), and the first column that has it."""
    if logits.is_cuda or logits.size(1) < 2 * BLOCK_COLUMNS:
        return logits.max(1)
    # The maximum alone takes a quarter of the time of its place.
    maxima = torch.stack([block.amax(1) for block in logits.split(BLOCK_COLUMNS, 1)], 1)
    start = maxima.argmax(1, keepdim=True) * BLOCK_COLUMNS
    columns = start + torch.arange(BLOCK_COLUMNS)  # N x BLOCK_COLUMNS
    columns = columns.clamp(max=logits.size(1) - 1)
    most, place = logits.gather(1, columns).max(1, keepdim=True)
    return most.squeeze(1), columns.gather(1, place).squeeze(1)
