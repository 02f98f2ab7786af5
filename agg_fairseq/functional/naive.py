"""The slow versions: to read first, and to test the fast ones against.

`naive_gated_cross_entropy` is the gated loss as the papers write it, in plain autograd; `NaiveAgg`
is the rule of AGG over updates (`gating.AggGating`); `naive_chunked` is `chunked`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .candidates import Candidates
from .chunks import Chunk, Loss
from .gates import Gates, rarest


def gate_gradient(value: Tensor, gate: Tensor) -> Tensor:
    """Eq. 6: equal to `value`, with its gradient multiplied by `gate`, not negative and
    broadcastable to `value`."""
    return gate * value + (1 - gate) * value.detach()


def naive_gated_cross_entropy(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    gates: Gates | None = None,
    label_smoothing: float = 0.0,
    position_weight: Tensor | None = None,
    candidates: Candidates | None = None,
    ul_alpha: float = 1.0,
    adv_epsilon: float = 0.0,
    scale: float = 1.0,
    softcap: float | None = None,
    ignore_index: int = -100,
) -> Tensor:
    """The gated likelihood and its terms, from the logits of Eqs. 9–10.

    The value, a scalar in nats, is that of the likelihood, with the gradients of the paper's sum,
    whose own value is twice that: the second value is subtracted without its gradient.
    """
    features, target = features.reshape(-1, features.size(-1)), target.reshape(-1)
    position = (target != ignore_index).nonzero().squeeze(1)
    importance = (
        torch.ones_like(target, dtype=weight.dtype)
        if position_weight is None
        else position_weight.flatten()
    )
    features, target, importance = features[position], target[position], importance[position]
    offset = weight.new_zeros(weight.size(0)) if bias is None else bias
    features, offset = scale * features, scale * offset

    def loss(logits: Tensor) -> Tensor:
        """The summands (n,) of the loss, from logits (n, V)."""
        if softcap is not None:
            logits = softcap * torch.tanh(logits / softcap)
        log_probs = F.log_softmax(logits, dim=1)  # n x V
        nll = -log_probs.gather(1, target[:, None]).squeeze(1)
        share = label_smoothing / log_probs.size(1)
        losses = importance * ((1 - label_smoothing) * nll - share * log_probs.sum(1))
        if candidates is not None:  # the token-level objective of Welleck et al. (2020)
            tokens, is_candidate = candidates.at(position, target)  # n x U
            penalty = -torch.log1p(-log_probs.exp().gather(1, tokens))
            losses = losses + ul_alpha * penalty.masked_fill(~is_candidate, 0.0).sum(1)
        return losses

    # Eq. 9: z⁰ carries the gradient into the features; z¹ and z² the gradient into W and b, where
    # the gates hold back the entries of H Wᵀ + b.
    gate = _gate_matrix(gates, target, weight)  # n x V: G, g1 or g2 by row, 1 at the target
    z0 = features @ weight.detach().t() + offset.detach()
    z12 = gate_gradient(features.detach() @ weight.t() + offset, gate)
    if adv_epsilon:  # Wang, Gong & Liu (2019): w_y + δ in place of w_y, δ detached
        h, w = features.detach(), weight.detach()[target]  # n x D
        delta = -adv_epsilon * w.norm(dim=1, keepdim=True) * F.normalize(h, dim=1)
        delta = delta * ((w * h).sum(1, keepdim=True) > 0)
        z0 = z0.scatter_add(1, target[:, None], (features * delta).sum(1, keepdim=True))
        z12 = z12.scatter_add(1, target[:, None], (h * delta).sum(1, keepdim=True))
    embedding_term = loss(z12)
    return (loss(z0) + embedding_term - embedding_term.detach()).sum()


def _gate_matrix(gates: Gates | None, target: Tensor, weight: Tensor) -> Tensor:
    """G (n, V) of the paper, for targets (n,) and W (V, D)."""
    matrix = torch.ones(len(target), weight.size(0), dtype=weight.dtype, device=weight.device)
    if gates is None:
        return matrix
    target_is_rare = gates.rare[target]
    if gates.g1 is not None:
        matrix[~target_is_rare] = gates.g1.to(weight.dtype)
    if gates.g2 is not None:
        matrix[target_is_rare] = gates.g2.to(weight.dtype)
    return matrix.scatter(1, target[:, None], 1.0)


class NaiveAgg:
    """Adaptive gradient gating over the updates of a training (Yu et al. 2022, Sec. 4), with α or
    with a fraction that is rare."""

    def __init__(
        self,
        vocabulary: int,
        *,
        window: int,
        alpha: float | None = None,
        rare_fraction: float | None = None,
    ) -> None:
        self.vocabulary, self.window = vocabulary, window
        self.alpha, self.rare_fraction = alpha, rare_fraction
        self.counts: list[Tensor] = []  # (V,) of each update in the window, the oldest first
        self.current = torch.zeros(vocabulary, dtype=torch.int64)  # of the update under way

    def __call__(self, target: Tensor) -> Gates | None:
        """The gates of a micro-batch, from the updates before its own; no target is negative."""
        self.current += torch.bincount(target[target >= 0], minlength=self.vocabulary)
        if not self.counts:
            return None
        a, updates = torch.stack(self.counts).sum(0), len(self.counts)
        if self.rare_fraction is not None:
            rare = rarest(a, self.rare_fraction)
        else:
            rare = a / updates < (self.alpha or 0)  # Eq. 5
        g1 = (a / updates).clamp(max=1)  # Eq. 7
        mean = a[rare].double().mean()
        g2 = (a / mean).clamp(max=1) if mean > 0 else torch.ones(self.vocabulary)  # Eq. 8
        return Gates(rare, g1, g2)

    def commit_update(self) -> None:
        """Ends an update, whose counts enter the window; the oldest leaves a full one."""
        self.counts = [*self.counts, self.current][-self.window :]
        self.current = torch.zeros_like(self.current)


def naive_chunked(
    loss: Loss,
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    gates: Gates | None = None,
    rows: int = 128,
) -> Tensor:
    """The sum of a loss of the logits `H Wᵀ + b`, of features (N, D) and targets (N,), `rows`
    positions at a time: neither the logits nor the gates exist for all of them.

    The gradients are formed on the way, when the logits of a chunk are there.
    """
    b = weight.new_zeros(len(weight)) if bias is None else bias
    total = weight.new_zeros(())
    grad_h, grad_w, grad_b = (torch.zeros_like(one) for one in (features, weight, b))
    for positions in (target >= 0).nonzero().squeeze(1).split(rows):
        h, y = features[positions].detach(), target[positions]
        logits = (h @ weight.t() + b).detach().requires_grad_()  # C x V
        with torch.enable_grad():
            value = loss(logits, Chunk(positions, y, y >= 0, h))["losses"].sum()
        (grad_logits,) = torch.autograd.grad(value, logits)  # by the loss alone
        total += value.detach()
        grad_h[positions] = grad_logits @ weight.detach()  # never gated
        gated = _gate_matrix(gates, y, weight) * grad_logits
        grad_w += gated.t() @ h
        grad_b += gated.sum(0)
    # 0, with these gradients
    pairs = ((features, grad_h), (weight, grad_w), (b, grad_b))
    for tensor, gradient in pairs:
        total = total + ((tensor - tensor.detach()) * gradient).sum()
    return total
