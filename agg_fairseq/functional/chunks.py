"""The forward pass of `gated_cross_entropy`, a chunk of logits at a time, with the gradients formed on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .gates import Gates
from .unlikelihood import PenaltyTerms, Unlikelihood

CHUNK_ELEMENTS = 2**23
"""Logits held at a time: 32 MiB in float32."""


class Options(NamedTuple):
    """What `gated_cross_entropy` was asked for, beside tensors that carry a gradient."""

    gates: Gates | None
    label_smoothing: float
    position_weight: Tensor | None  # (N,)
    unlikelihood: Unlikelihood | None
    ignore_index: int
    chunk_elements: int | None  # logits held at a time; None: as many as suit the device
    predict: bool


class Wanted(NamedTuple):
    """Which gradients."""

    features: bool
    weight: bool
    bias: bool


class Outputs(NamedTuple):
    """Values at each position, zero at the ignored ones."""

    nll: Tensor  # (N,) −log P[i, y_i]
    terms: Tensor  # (N,) the summands of the loss
    unlikelihood: Tensor  # (N,) before its weight
    prediction: Tensor | None  # (N,) int64


@dataclass
class ChunkedLoss:
    """One forward pass: inputs in the dtype of the products, outputs and gradients filled chunk by chunk."""

    features: Tensor  # (N, D)
    weight: Tensor  # (V, D)
    bias: Tensor | None  # (V,)
    target: Tensor  # (N,)
    options: Options
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype | None]
    outputs: Outputs
    grad_features: Tensor | None  # (N, D)
    grad_weight: Tensor | None  # (V, D)
    grad_bias: Tensor | None  # (V,)

    @classmethod
    def start(
        cls,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        options: Options,
        wanted: Wanted,
    ) -> ChunkedLoss:
        """Allocates outputs and gradients: zeros, so that ignored positions need no further care."""
        dtype = working_dtype(features)
        zeros = features.new_zeros(target.shape, dtype=dtype)
        return cls(
            features=features.detach(),
            weight=weight.detach().to(cls.product_dtype(features)),
            bias=None if bias is None else bias.detach().to(dtype),
            target=target,
            options=options,
            dtypes=(features.dtype, weight.dtype, None if bias is None else bias.dtype),
            outputs=Outputs(
                nll=zeros,
                terms=zeros.clone(),
                unlikelihood=zeros.clone() if options.unlikelihood else zeros.new_zeros(()).expand_as(zeros),
                prediction=torch.zeros_like(target) if options.predict else None,
            ),
            grad_features=_zeros_like(features, dtype, wanted.features),
            grad_weight=_zeros_like(weight, dtype, wanted.weight),
            grad_bias=_zeros_like(bias, dtype, wanted.bias),
        )

    @staticmethod
    def product_dtype(features: Tensor) -> torch.dtype:
        """What the products are formed in."""
        return working_dtype(features)

    def run(self) -> None:
        """Fills outputs and gradients; autocast has no say in how."""
        with torch.autocast(self.features.device.type, enabled=False):
            self._run()

    def _run(self) -> None:
        """Common rows first: their gate is applied to the finished sum, before the rare rows are added to it."""
        gates = self.options.gates
        rows = (self.target != self.options.ignore_index).nonzero().squeeze(1)  # n <= N
        if gates is None:
            return self._run_rows(rows)
        is_rare = gates.rare[self.target[rows]]  # n
        self._run_rows(rows[~is_rare])
        if self.grad_weight is not None:
            gate = gates.at_common_targets(like=self.grad_weight)
            if gate is not None:
                self.grad_weight.mul_(gate[:, None])
        self._run_rows(rows[is_rare], gates)

    def _run_rows(self, rows: Tensor, gates: Gates | None = None) -> None:
        """The given positions; `gates` where their entries are to be gated one by one, as the rare rows' are."""
        if not len(rows):
            return
        chunk_rows = self._chunk_rows(len(rows), CHUNK_ELEMENTS)
        buffer = self.weight.new_empty(chunk_rows, self.weight.size(0))  # C x V
        for chunk in rows.split(chunk_rows):
            self._run_chunk(chunk, buffer[: len(chunk)], gates)

    def _chunk_rows(self, rows: int, default_elements: int) -> int:
        """C: at least one, at most all."""
        elements = default_elements if self.options.chunk_elements is None else self.options.chunk_elements
        return min(max(1, elements // self.weight.size(0)), rows)

    def _run_chunk(self, rows: Tensor, buffer: Tensor, gates: Gates | None) -> None:
        features = self.features[rows].to(self.weight.dtype)  # C x D
        target = self.target[rows]  # C
        logits = torch.mm(features, self.weight.t(), out=buffer)  # C x V
        if self.bias is not None:
            logits.add_(self.bias)
        probabilities = self._likelihood(rows, target, logits)  # the same memory
        penalty = self._penalty(rows, target, probabilities)
        if self.grad_features is None and self.grad_weight is None and self.grad_bias is None:
            return
        residual = self._residual_(rows, target, probabilities, penalty)  # dL/dz, C x V, the same memory
        if self.grad_features is not None:
            self.grad_features[rows] = residual @ self.weight
        if self.grad_bias is not None:
            self.grad_bias += residual.sum(0)
        if self.grad_weight is not None:
            gate = None if gates is None else gates.at_rare_targets(target, like=residual)
            if gate is not None:
                _gate_all_but_targets_(residual, target, gate)
            self.grad_weight.addmm_(residual.t(), features)

    def _likelihood(self, rows: Tensor, target: Tensor, logits: Tensor) -> Tensor:
        """Stores the likelihood of a chunk and turns its logits into probabilities, in place.

        −log P[y] is read off the largest entry: `(max z − z[y]) − log max P`, where max P is at least 1/V.
        """
        epsilon, vocabulary = self.options.label_smoothing, logits.size(1)
        at_target = logits.gather(1, target[:, None]).squeeze(1)  # C
        if self.outputs.prediction is None:
            largest = logits.amax(1)  # C
        else:
            largest, self.outputs.prediction[rows] = logits.max(1)
        logits_sum = logits.sum(1) if epsilon else None  # C
        probabilities = torch.softmax(logits, 1, out=logits)  # C x V
        log_largest = probabilities.amax(1).log()  # C, of max P
        nll = (largest - at_target) - log_largest  # the logits first: they cancel exactly where the target is the max
        self.outputs.nll[rows] = nll
        terms = nll
        if logits_sum is not None:
            share = epsilon / (vocabulary - 1)
            uniform = vocabulary * (largest - log_largest) - logits_sum  # −Σ_k log P[i, k]
            terms = (1 - epsilon - share) * nll + share * uniform
        importance = self._importance(rows)
        self.outputs.terms[rows] = terms if importance is None else terms * importance
        return probabilities

    def _importance(self, rows: Tensor) -> Tensor | None:
        """The weight of the likelihood at some positions (C,), None where it is 1."""
        weight = self.options.position_weight
        return None if weight is None else weight[rows].to(self.weight.dtype)

    def _penalty(self, rows: Tensor, target: Tensor, probabilities: Tensor) -> PenaltyTerms | None:
        unlikelihood = self.options.unlikelihood
        if unlikelihood is None:
            return None
        penalty = unlikelihood.terms(rows, target, probabilities)
        self.outputs.unlikelihood[rows] = penalty.value
        self.outputs.terms[rows] += unlikelihood.weight * penalty.value
        return penalty

    def _residual_(self, rows: Tensor, target: Tensor, probabilities: Tensor, penalty: PenaltyTerms | None) -> Tensor:
        """The gradient into the logits, in the memory of P: `ω (P − Q) + α (w − s·P)`, ω the position's weight."""
        epsilon, importance = self.options.label_smoothing, self._importance(rows)
        if penalty is None:
            residual = _subtract_targets_(probabilities, target, epsilon)
            return residual if importance is None else residual.mul_(importance[:, None])
        alpha = self.options.unlikelihood.weight
        ones = torch.ones_like(penalty.value) if importance is None else importance
        share = epsilon / max(probabilities.size(1) - 1, 1)
        is_target = penalty.likeliest == target[:, None]  # C x 1
        q = torch.where(is_target, 1 - epsilon, probabilities.new_tensor(share))
        at_likeliest = ones[:, None] * (probabilities.gather(1, penalty.likeliest) - q)  # before P is scaled
        probabilities.mul_((ones - alpha * penalty.odds.sum(1))[:, None])
        residual = _subtract_targets_(probabilities, target, epsilon, importance)
        penalty.add_gradient_(residual, at_likeliest, alpha)
        return residual

    def gradients(self) -> list[tuple[Tensor, torch.dtype] | None]:
        """The gradients of features, weight and bias, each with the dtype it is wanted in."""
        found = (self.grad_features, self.grad_weight, self.grad_bias)
        return [None if g is None else (g, dtype) for g, dtype in zip(found, self.dtypes, strict=True)]


def wants_gradient(tensor: Tensor | None) -> bool:
    """Will a backward pass ask for it? Inside an `autograd.Function` this can no longer be told: under
    `torch.no_grad()`, as in validation, its `needs_input_grad` says yes."""
    return tensor is not None and tensor.requires_grad and torch.is_grad_enabled()


def working_dtype(features: Tensor) -> torch.dtype:
    """What values and gradients are formed in: float32, or float64 for float64 features."""
    return torch.float64 if features.dtype == torch.float64 else torch.float32


def _zeros_like(tensor: Tensor | None, dtype: torch.dtype, is_wanted: bool) -> Tensor | None:
    return None if tensor is None or not is_wanted else torch.zeros_like(tensor, dtype=dtype)


def _subtract_targets_(
    probabilities: Tensor, target: Tensor, label_smoothing: float, importance: Tensor | None = None
) -> Tensor:
    """P − ω Q in the memory of P: Q is 1 − ε at the target and ε/(V−1) at every other token; ω (C,) or 1."""
    share = label_smoothing / (probabilities.size(1) - 1) if label_smoothing else 0.0
    weight = probabilities.new_ones(len(target), 1) if importance is None else importance[:, None]  # C x 1
    if label_smoothing:
        probabilities.sub_(share * weight)
    return probabilities.scatter_add_(1, target[:, None], (share + label_smoothing - 1) * weight)


def _gate_all_but_targets_(residual: Tensor, target: Tensor, gate: Tensor) -> None:
    at_target = residual.gather(1, target[:, None])
    residual.mul_(gate).scatter_(1, target[:, None], at_target)
