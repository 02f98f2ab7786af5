"""Softmax cross-entropy whose gradient into the output embedding is gated.

The value is that of plain cross-entropy and so is the gradient into the features; what a *method* (AGG, AGPS,
freezing) changes is how much of the gradient reaches each row of the output embedding `W`:

    P         = softmax(H Wᵀ + b)                                          (N, V)
    dL/dH     = (P − Q) W                                                  never gated
    dL/db     = Σ_i (P − Q)[i]                                             never gated
    dL/dW[k]  = Σ_i G[i, k] (P − Q)[i, k] H[i]
    G[i, k]   = 1                if k = y_i
              = gate_common[k]   if y_i is not rare
              = gate_rare[k]     if y_i is rare

`G` depends on the row only through "is y_i rare" and "is k the target", so it is never written down. The rows are
ordered by kind. Over the common rows the gate factors out of the sum, `gate_common ⊙ Σ_i …`: one pass over (V, D).
Over the rare rows, which are few, the entries of `P − Q` themselves are gated. A target entry of a common row belongs
to a common token, whose gate is 1; one of a rare row is put back after gating.

Cost: the three products of plain cross-entropy (6·N·V·D operations) and, beyond inputs and gradients, one chunk of
logits. The gradients are formed during the forward pass, in float32 (float64 for float64 input), and rescaled in the
backward pass; so nothing underflows under a loss scale, and the logits are computed only once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_ELEMENTS = 2**23
"""Logits held at a time: 32 MiB in float32."""


@dataclass(frozen=True)
class Gates:
    """How much of the gradient reaches each row of the output embedding.

    Args:
        rare: (V,) bool, the rare tokens R. Outside R every gate is 1, whatever the vectors below hold.
        gate_common: (V,) in [0, 1], gates at positions whose target is not rare; None means 1 everywhere.
        gate_rare: (V,) in [0, 1], gates at positions whose target is rare; None means 1 everywhere.
    """

    rare: Tensor
    gate_common: Tensor | None = None
    gate_rare: Tensor | None = None


class CrossEntropyOutput(NamedTuple):
    """What `gated_cross_entropy` returns; everything in nats, zero at ignored positions."""

    loss: Tensor
    """Scalar, summed over positions, label-smoothed; the only field that carries a gradient."""
    nll: Tensor
    """Like `target`: −log P[i, y_i]."""
    smoothed: Tensor
    """Like `target`: the summands of `loss`. Equal to `nll` without label smoothing."""


def gated_cross_entropy(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    gates: Gates | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> CrossEntropyOutput:
    """Cross-entropy of `softmax(features weightᵀ + bias)`, gated where it flows into `weight`.

    In value the same as

        logits = features @ weight.T + bias
        loss = F.cross_entropy(logits.flatten(0, -2), target.flatten(), ignore_index=ignore_index, reduction="sum")

    and in gradient the same as `agg_fairseq.functional.naive_gated_cross_entropy`, without ever holding the logits
    of more than one chunk of positions. `backward` may run once: the gradients live in the graph.

    Args:
        features: (..., D) H, floating point.
        weight: (V, D) W, the output embedding.
        target: (...) y, int64 in [0, V), or `ignore_index`.
        bias: (V,) b, added to the logits; its gradient is not gated.
        gates: which rows receive how much; None is plain likelihood.
        label_smoothing: ε in [0, 1). As fairseq does it, ε/(V−1) goes to every token but the target.
        ignore_index: target value of the positions that contribute nothing (padding).
        chunk_elements: logits held at a time, at least one row of V.

    Returns:
        CrossEntropyOutput: the loss, and its summands per position.

    Raises:
        ValueError: a shape, a range or a size does not fit.
        TypeError: `target` is not int64, or `features` not floating point.

    Example:
        >>> H, W = torch.ones(2, 3), torch.zeros(4, 3, requires_grad=True)
        >>> out = gated_cross_entropy(H, W, torch.tensor([1, 3]))
        >>> round(out.loss.item(), 4)  # 2 log 4
        2.7726

    Reference: Yu et al. (2022), "Rare Tokens Degenerate All Tokens", Eqs. 6–10 and 23. Their Eq. 10 adds a second
    term of equal value that only routes gradients; here the value is the likelihood's, once.
    """
    _check(features, weight, target, bias, gates, label_smoothing, ignore_index)
    size, vocabulary = target.shape, weight.size(0)
    options = _Options(
        gates=gates,
        label_smoothing=label_smoothing,
        ignore_index=ignore_index,
        chunk_rows=max(1, chunk_elements // vocabulary),
    )
    loss, nll, smoothed = _GatedCrossEntropy.apply(
        features.reshape(-1, features.size(-1)), weight, bias, target.reshape(-1), options
    )
    return CrossEntropyOutput(loss, nll.view(size), smoothed.view(size))


class _Options(NamedTuple):
    gates: Gates | None
    label_smoothing: float
    ignore_index: int
    chunk_rows: int


class _GatedCrossEntropy(torch.autograd.Function):
    """Forms the gradients in the forward pass and scales them in the backward pass (Eq. 23)."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, options: _Options
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of H (N, D), W (V, D), b (V,) or None and y (N,): a scalar, `nll` and `smoothed` (N,), in nats."""
        wanted = _Wanted(*ctx.needs_input_grad[:3])
        with torch.autocast(features.device.type, enabled=False):
            work = _Work.start(features, weight, bias, target, options, wanted)
            work.run()
        ctx.gradients = work.gradients()
        ctx.mark_non_differentiable(work.nll, work.smoothed)
        return work.smoothed.sum(), work.nll, work.smoothed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of H (N, D), W (V, D) and b (V,) times `grad_loss`, a scalar: 1, or a loss scale.

        Raises:
            RuntimeError: a second call; the first has used the gradients up.
        """
        if ctx.gradients is None:
            raise RuntimeError(
                "gated_cross_entropy: backward ran twice over the same loss, but its gradients are used up after "
                "the first; compute the loss again"
            )
        gradients, ctx.gradients = ctx.gradients, None
        return (*(_scaled_(gradient, grad_loss) for gradient in gradients), None, None)


class _Wanted(NamedTuple):
    features: bool
    weight: bool
    bias: bool


@dataclass
class _Work:
    """One forward pass: inputs in the dtype of the products, outputs and gradients filled chunk by chunk."""

    features: Tensor  # (N, D)
    weight: Tensor  # (V, D)
    bias: Tensor | None  # (V,)
    target: Tensor  # (N,)
    options: _Options
    dtypes: tuple[torch.dtype, torch.dtype, torch.dtype | None]
    nll: Tensor  # (N,)
    smoothed: Tensor  # (N,)
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
        options: _Options,
        wanted: _Wanted,
    ) -> _Work:
        """Allocates outputs and gradients: zeros, so that ignored positions need no further care."""
        dtype = torch.float64 if features.dtype == torch.float64 else torch.float32

        return cls(
            features=features.detach(),
            weight=weight.detach().to(dtype),
            bias=None if bias is None else bias.detach().to(dtype),
            target=target,
            options=options,
            dtypes=(features.dtype, weight.dtype, None if bias is None else bias.dtype),
            nll=torch.zeros(target.shape, dtype=dtype, device=features.device),
            smoothed=torch.zeros(target.shape, dtype=dtype, device=features.device),
            grad_features=_zeros_like(features, dtype, wanted.features),
            grad_weight=_zeros_like(weight, dtype, wanted.weight),
            grad_bias=_zeros_like(bias, dtype, wanted.bias),
        )

    def run(self) -> None:
        """Common rows first: their gate is applied to the finished sum, before the rare rows are added to it."""
        gates = self.options.gates
        rows = (self.target != self.options.ignore_index).nonzero().squeeze(1)  # n <= N
        if gates is None:
            return self._run_rows(rows)
        is_rare = gates.rare[self.target[rows]]  # n
        self._run_rows(rows[~is_rare])
        if gates.gate_common is not None and self.grad_weight is not None:
            self.grad_weight.mul_(_gate(gates.gate_common, gates, self.grad_weight)[:, None])
        gate_rare = None if gates.gate_rare is None else _gate(gates.gate_rare, gates, self.nll)
        self._run_rows(rows[is_rare], gate_rare)

    def _run_rows(self, rows: Tensor, gate: Tensor | None = None) -> None:
        if not len(rows):
            return
        chunk_rows = min(self.options.chunk_rows, len(rows))
        buffer = self.nll.new_empty(chunk_rows, self.weight.size(0))  # C x V
        for chunk in rows.split(chunk_rows):
            self._run_chunk(chunk, buffer[: len(chunk)], gate)

    def _run_chunk(self, rows: Tensor, buffer: Tensor, gate: Tensor | None) -> None:
        features = self.features[rows].to(self.weight.dtype)  # C x D
        target = self.target[rows]  # C
        logits = torch.mm(features, self.weight.t(), out=buffer)  # C x V
        if self.bias is not None:
            logits.add_(self.bias)
        probabilities = self._value(rows, target, logits)  # the same memory
        if self.grad_features is None and self.grad_weight is None and self.grad_bias is None:
            return
        residual = _subtract_targets_(probabilities, target, self.options.label_smoothing)  # (P − Q), C x V
        if self.grad_features is not None:
            self.grad_features[rows] = residual @ self.weight
        if self.grad_bias is not None:
            self.grad_bias += residual.sum(0)
        if self.grad_weight is not None:
            if gate is not None:
                _gate_all_but_targets_(residual, target, gate)
            self.grad_weight.addmm_(residual.t(), features)

    def _value(self, rows: Tensor, target: Tensor, logits: Tensor) -> Tensor:
        """Stores the loss of a chunk and turns its logits into probabilities, in place.

        −log P[y] is read off the largest entry: `(max z − z[y]) − log max P`, where max P is at least 1/V.
        """
        epsilon, vocabulary = self.options.label_smoothing, logits.size(1)
        at_target = logits.gather(1, target[:, None]).squeeze(1)  # C
        largest = logits.amax(1)  # C
        logits_sum = logits.sum(1) if epsilon else None  # C
        probabilities = torch.softmax(logits, 1, out=logits)  # C x V
        log_largest = probabilities.amax(1).log()  # C, of max P
        nll = (largest - at_target) - log_largest  # the logits first: they cancel exactly where the target is the max
        self.nll[rows] = nll
        if logits_sum is None:
            self.smoothed[rows] = nll
        else:
            share = epsilon / (vocabulary - 1)
            uniform = vocabulary * (largest - log_largest) - logits_sum  # −Σ_k log P[i, k]
            self.smoothed[rows] = (1 - epsilon - share) * nll + share * uniform
        return probabilities

    def gradients(self) -> list[tuple[Tensor, torch.dtype] | None]:
        """The gradients of features, weight and bias, each with the dtype it is wanted in."""
        found = (self.grad_features, self.grad_weight, self.grad_bias)
        return [None if g is None else (g, dtype) for g, dtype in zip(found, self.dtypes, strict=True)]


def _zeros_like(tensor: Tensor | None, dtype: torch.dtype, is_wanted: bool) -> Tensor | None:
    return None if tensor is None or not is_wanted else torch.zeros_like(tensor, dtype=dtype)


def _gate(gate: Tensor, gates: Gates, like: Tensor) -> Tensor:
    return gate.to(like).masked_fill(~gates.rare, 1.0)


def _subtract_targets_(probabilities: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
    """P − Q in the memory of P: 1 − ε off the target and ε/(V−1) off every other token."""
    if label_smoothing:
        share = label_smoothing / (probabilities.size(1) - 1)
        probabilities.sub_(share)
    else:
        share = 0.0
    peak = probabilities.new_full((len(target), 1), share + label_smoothing - 1)
    return probabilities.scatter_add_(1, target[:, None], peak)


def _gate_all_but_targets_(residual: Tensor, target: Tensor, gate: Tensor) -> None:
    at_target = residual.gather(1, target[:, None])
    residual.mul_(gate).scatter_(1, target[:, None], at_target)


def _scaled_(gradient: tuple[Tensor, torch.dtype] | None, scale: Tensor) -> Tensor | None:
    """The gradient times the scale that autograd hands down, in its own memory, then in the wanted dtype."""
    if gradient is None:
        return None
    tensor, dtype = gradient
    if scale.is_cuda or scale.item() != 1:
        tensor.mul_(scale.to(tensor.dtype))
    return tensor.to(dtype)


def _check(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    gates: Gates | None,
    label_smoothing: float,
    ignore_index: int,
) -> None:
    if not features.is_floating_point():
        raise TypeError(f"gated_cross_entropy: expected floating-point features, got {features.dtype}")
    if target.dtype != torch.int64:
        raise TypeError(f"gated_cross_entropy: expected target of dtype torch.int64, got {target.dtype}")
    if weight.dim() != 2 or weight.size(1) != features.size(-1):
        raise ValueError(
            f"gated_cross_entropy: expected weight of shape (V, {features.size(-1)}) for features of shape "
            f"{tuple(features.shape)}, got {tuple(weight.shape)}"
        )
    if target.shape != features.shape[:-1]:
        raise ValueError(
            f"gated_cross_entropy: expected target of shape {tuple(features.shape[:-1])}, got {tuple(target.shape)}"
        )
    vectors = {"bias": bias}
    if gates is not None:
        vectors |= {"gates.rare": gates.rare, "gate_common": gates.gate_common, "gate_rare": gates.gate_rare}
    for name, vector in vectors.items():
        if vector is not None and vector.shape != weight.shape[:1]:
            raise ValueError(
                f"gated_cross_entropy: expected {name} of shape ({weight.size(0)},), got {tuple(vector.shape)}"
            )
    if not 0 <= label_smoothing < 1 or math.isnan(label_smoothing):
        raise ValueError(f"gated_cross_entropy: expected label_smoothing in [0, 1), got {label_smoothing}")
    if label_smoothing and weight.size(0) == 1:
        raise ValueError("gated_cross_entropy: label_smoothing needs at least 2 tokens, got 1")
    if target.device.type == "cpu":
        _check_range(target, weight.size(0), ignore_index)


def _check_range(target: Tensor, vocabulary: int, ignore_index: int) -> None:
    """On a CPU only: elsewhere the check would wait for the device, which reports a bad index by itself."""
    bad = (target != ignore_index) & ((target < 0) | (target >= vocabulary))
    if bad.any():
        raise ValueError(
            f"gated_cross_entropy: expected targets in [0, {vocabulary}) or {ignore_index} (ignored), "
            f"got {int(target[bad][0])}"
        )
