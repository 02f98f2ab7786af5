"""Perplexity, distinct predictions and calibration per frequency group, accumulated over batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from .groups import FrequencyGroups

T = TypeVar("T")


class NextTokenStatistics:
    """Sufficient statistics of teacher-forced next-token prediction.

    Args:
        groups: the group of each token of the vocabulary.
        vocabulary: V.
    """

    def __init__(self, groups: FrequencyGroups, vocabulary: int) -> None:
        self.groups = groups
        self._nll = torch.zeros(vocabulary, dtype=torch.float64)  # V, sum over the positions with that target
        self._targets = torch.zeros(vocabulary, dtype=torch.int64)
        self._predicted = torch.zeros(vocabulary, dtype=torch.bool)
        self._expected: Tensor | None = torch.zeros(vocabulary, dtype=torch.float64)

    def add(self, nll: Tensor, target: Tensor, predicted: Tensor, expected: Tensor | None = None) -> None:
        """Adds positions.

        Args:
            nll: (N,) −log P[i, y_i], in nats.
            target: (N,) y.
            predicted: (N,) the most probable token.
            expected: (V,) Σ_i P[i, k], the expected number of each token at these positions; needed only for
                `expected_over_observed`.
        """
        target = target.cpu()
        self._nll.index_add_(0, target, nll.double().cpu())
        self._targets += torch.bincount(target, minlength=len(self._targets))
        self._predicted[predicted.cpu()] = True
        if expected is None:
            self._expected = None
        elif self._expected is not None:
            self._expected += expected.double().cpu()

    @property
    def tokens(self) -> int:
        """The number of positions added."""
        return int(self._targets.sum())

    def perplexity(self) -> dict[str, float | None]:
        """exp of the mean NLL (in nats) over the targets of each group, and over all as `total`; None without targets.

        At least 1; inf where the mean is 700 nats or more. The groups are those of Yu et al. (2022), Tables 1–3.
        """

        def of_tokens(tokens: Tensor | slice) -> float | None:
            targets = self._targets[tokens].sum()
            if targets == 0:
                return None
            mean = (self._nll[tokens].sum() / targets).item()
            return math.exp(mean) if mean < 700 else math.inf  # exp overflows above 709

        return self._by_group(of_tokens)

    def unique_predictions(self) -> dict[str, int]:
        """Uniq: the number of distinct arg-max predictions, by the group of the prediction, and all as `total`."""
        return self._by_group(lambda tokens: int(self._predicted[tokens].sum()))

    def unique_targets(self) -> dict[str, int]:
        """Uniq of the human text: the number of distinct targets."""
        return self._by_group(lambda tokens: int((self._targets[tokens] > 0).sum()))

    def expected_over_observed(self) -> dict[str, float | None]:
        """Σ_i Σ_{k in group} P[i, k], divided by the number of targets of the group; None without targets.

        A ratio of two numbers of tokens, at least 0, and a measure of our own: 1 for a calibrated model; 2 for one that
        gives the group twice the probability that it deserves on average, which all other groups pay for. `total` is 1
        if P sums to 1.

        Raises:
            ValueError: `expected` was left out of a call of `add`.
        """
        if self._expected is None:
            raise ValueError("found positions without expected counts; give `expected` to each call of `add`")
        expected = self._expected

        def of_tokens(tokens: Tensor | slice) -> float | None:
            targets = int(self._targets[tokens].sum())
            return expected[tokens].sum().item() / targets if targets else None

        return self._by_group(of_tokens)

    def _by_group(self, measure: Callable[[Tensor | slice], T]) -> dict[str, T]:
        everything = slice(None)
        return {name: measure(self.groups.members(name)) for name in self.groups.names} | {"total": measure(everything)}
