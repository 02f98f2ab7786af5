"""The loss of a training: label-smoothed likelihood, and terms that are added with a weight.

A term is one entry of `TERMS`. The options of fairseq's criterions, their help, and what is logged
are made from it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .candidates import previous_tokens
from .chunks import Chunk, Loss, Values, chunked
from .cosine_regularizer import cosine_regularizer
from .gates import Gates
from .losses import (
    SmoothedLikelihood,
    adversarial_shift,
    check_weights,
    nll_without_margin,
    rest_of_one,
    smoothed,
    softmax_grad_,
    unlikelihood,
)

Average = tuple[Any, Any]
"""A sum and its number of summands: their quotient is logged."""


class Term(NamedTuple):
    """A term of the loss. Its value is that of one of two functions: `of_logits`, at each position
    and gated like the likelihood, or `of_weight`, once per update and not gated.

    The entry without a function lowers the logit of the target before all others.
    """

    option: str  # the name of its weight; 0 leaves it out
    logged: str  # its name in the log, without the weight
    in_bits: bool  # are its values in nats, and logged in bits per target? Else they are logged as they are
    decimals: int  # in the log
    help: str
    # (C,). In float16, a gradient into a logit that is far above 1 may overflow.
    of_logits: Callable[[Tensor, Chunk, Any], Tensor] | None = None
    # Does a constant that is added to all logits of a position leave the value as it is? Only then
    # can it be that of log-probabilities, which are all that some models of fairseq give.
    takes_log_probs: bool = False
    # of the targets (B, T) of a micro-batch and `ignore_index`: the third argument of `of_logits`
    prepare: Callable[[Tensor, int], Any] = lambda target, ignore_index: None
    of_weight: Callable[[Tensor, int | None], Tensor] | None = None  # of W and the row of padding


def unlikelihood_of_chunk(logits: Tensor, chunk: Chunk, candidates: Any) -> Tensor:
    """`unlikelihood` of the candidates at the positions of a chunk."""
    return unlikelihood(logits, *candidates.at(chunk.positions, chunk.target))


TERMS = (
    Term(
        "ul_alpha",
        "ul_loss",
        in_bits=True,
        decimals=3,
        help="weight of the unlikelihood of tokens seen earlier in their sequence (Welleck et al. "
        "2020: 1.0)",
        of_logits=unlikelihood_of_chunk,
        takes_log_probs=True,
        prepare=previous_tokens,
    ),
    Term(
        "adv_epsilon",
        "adv_loss",
        in_bits=True,
        decimals=3,
        help="adversarial training: lower the logit of the target by this share of the product of "
        "the norms of its embedding and of the features (Wang et al. 2019: 0.005, in their "
        "fine-tuning 0.028)",
    ),
    Term(
        "cosreg_gamma",
        "cosreg",
        in_bits=False,
        decimals=4,
        help="weight of the mean cosine between output embeddings (Gao et al. 2019: 1.0)",
        of_weight=lambda weight, padding_row: cosine_regularizer(weight, padding_row=padding_row),
    ),
)


class LossOutput(NamedTuple):
    """The loss of a micro-batch, its parts, and what to log."""

    loss: Tensor  # scalar in nats, summed over the targets
    losses: Tensor  # (B, T), its summands, without the terms of W
    nll: Tensor  # (B, T), −log P of the targets
    logged: dict[str, Average]
    prediction: Tensor | None = None  # (B, T), the arg-max, if it was asked for


class TrainingLoss(nn.Module):
    """Label-smoothed likelihood and weighted terms, of features and an output embedding, by
    `functional.chunked`. In evaluation mode or under `torch.no_grad` without the margin of
    `adv_epsilon`.

    Args:
        label_smoothing: ε in [0, 1], as in torch: ε/V for each token, the rest for the target.
        ignore_index: the target at positions without one.
        padding_row: row of W that is not a token, left out of the terms of W.
        **weights: of the terms, by their `option` in `TERMS`, such as `ul_alpha=1.0`.

    Raises:
        ValueError: a weight is out of its range.
        TypeError: there is no such term.

    Examples:
        >>> loss = TrainingLoss(ul_alpha=1.0)
        >>> features, weight = torch.zeros(1, 2, 3), torch.zeros(4, 3, requires_grad=True)
        >>> output = loss(features, weight, torch.tensor([[1, 2]]))
        >>> round(output.loss.item(), 4)  # 2 log 4 − log(1 − 1/4): token 1 should not follow itself
        3.0603
    """

    def __init__(
        self,
        *,
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        padding_row: int | None = None,
        **weights: float,
    ) -> None:
        super().__init__()
        options = [term.option for term in TERMS]
        if unknown := weights.keys() - {*options}:
            raise TypeError(f"expected the terms {', '.join(options)}, got {', '.join(unknown)}")
        check_weights(label_smoothing, **weights)
        self.label_smoothing = label_smoothing
        self.ignore_index, self.padding_row = ignore_index, padding_row
        self.weights = {option: weights.get(option, 0.0) for option in options}

    # Its loop depends on the targets. torch.compiler.disable would import the compiler at once.
    @torch._disable_dynamo
    def forward(
        self,
        features: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        *,
        gates: Gates | None = None,
        position_weight: Tensor | None = None,
        predict: bool = False,
        denominator: int | None = None,
        replacement: Loss | None = None,
    ) -> LossOutput:
        """The loss of a micro-batch.

        Args:
            features: (B, T, D), the input of the output layer.
            weight: W (V, D).
            target: (B, T) int64 in [0, V), or `ignore_index`.
            bias: b (V,), gated like W.
            gates: as of `functional.chunked`.
            position_weight: (B, T), of the likelihood.
            predict: also return the arg-max of the logits.
            denominator: what this micro-batch adds to the number by which the loss of the update is
                divided, so that the terms of W count once per update; None is the number of
                targets.
            replacement: a loss of logits in place of the likelihood and its terms.
        """
        bound = sum(self.weights[term.option] for term in TERMS if term.of_logits is not None)
        largest: Tensor | float = 1.0
        if position_weight is not None and position_weight.shape != target.shape:
            found = f"{tuple(position_weight.shape)} and {tuple(target.shape)}"
            raise ValueError(f"expected position_weight and target of one shape, got {found}")
        if position_weight is not None and position_weight.numel():
            largest = position_weight.abs().max().clamp(min=1e-6)
        loss, values = chunked(
            replacement or self.of_batch(weight, target, position_weight),
            features,
            weight,
            target,
            bias=bias,
            gates=gates,
            ignore_index=self.ignore_index,
            bound=bound + largest,
            predict=predict,
        )
        return self.complete(loss, values, weight, target, denominator)

    def from_logits(
        self,
        logits: Tensor,
        weight: Tensor,
        target: Tensor,
        *,
        position_weight: Tensor | None = None,
        predict: bool = False,
        denominator: int | None = None,
        replacement: Loss | None = None,
    ) -> LossOutput:
        """The loss of logits (B, T, V), which a model formed by `functional.gated_linear`, and may
        have changed since.

        Other arguments as those of `forward`. ValueError for a margin, which needs features.
        """
        y, has_target = target.reshape(-1), target.reshape(-1) != self.ignore_index
        positions = torch.arange(len(y), device=y.device)
        chunk = Chunk(positions, y.where(has_target, 0), has_target, None)
        logits = logits.flatten(0, -2)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = replacement or self.of_batch(weight, target, position_weight)
        values = loss(logits, chunk)
        if predict:
            values["prediction"] = logits.argmax(1)
        values = {name: one.where(has_target, 0).view(target.shape) for name, one in values.items()}
        return self.complete(values["losses"].sum(), values, weight, target, denominator)

    def of_batch(
        self,
        weight: Tensor,
        target: Tensor,
        position_weight: Tensor | None = None,
    ) -> Loss:
        """The loss of the logits of a micro-batch with targets (B, T), for `functional.chunked`."""
        omega = None if position_weight is None else position_weight.reshape(-1)
        likelihood = SmoothedLikelihood(self.label_smoothing, omega)
        terms = [
            (term, self.weights[term.option], term.prepare(target, self.ignore_index))
            for term in TERMS
            if term.of_logits is not None and self.weights[term.option]
        ]
        is_training = self.training and torch.is_grad_enabled()
        epsilon = self.weights["adv_epsilon"] if is_training else 0.0
        if not terms and not epsilon:
            return likelihood
        loss = _LossOfBatch(likelihood, terms, epsilon, weight)
        has_formula = all(term.of_logits is unlikelihood_of_chunk for term, *_ in terms)
        has_formula &= not hasattr(weight, "device_mesh")
        return loss if has_formula else loss.__call__  # which autograd differentiates

    def complete(
        self,
        loss: Tensor,
        values: Values,
        weight: Tensor,
        target: Tensor,
        denominator: int | None = None,
    ) -> LossOutput:
        """Adds the terms of W (V, D) to the loss of a micro-batch with targets (B, T).

        Args:
            loss: the sum of `values["losses"]`, which carries the gradient.
            values: of the positions, (B, T): `losses`, `nll`, those of the terms, and maybe a
                `prediction`.
            denominator: as of `forward`.
        """
        targets = (target != self.ignore_index).sum()
        logged: dict[str, Average] = {}
        for term in TERMS:
            if term.logged in values:
                total = values[term.logged].detach().sum()
                logged[term.logged] = total / math.log(2) if term.in_bits else total, targets
            if term.of_weight is not None and self.weights[term.option]:
                value = term.of_weight(weight, self.padding_row)
                logged[term.logged] = value.detach(), 1
                factor = (
                    targets
                    if denominator is None
                    else torch.full_like(targets, denominator, dtype=loss.dtype)
                )
                # a loss that is divided by 0 has a gradient of 0, and not 0 · ∞
                loss = loss + (factor * self.weights[term.option] * value).where(factor > 0, 0)
        losses, nll = values["losses"].detach(), values["nll"].detach()
        return LossOutput(loss, losses, nll, logged, values.get("prediction"))


class _LossOfBatch:
    """Likelihood and terms, of a chunk of the logits of a micro-batch."""

    def __init__(
        self,
        likelihood: SmoothedLikelihood,
        terms: list[tuple[Term, float, Any]],
        adv_epsilon: float,
        weight: Tensor,
    ) -> None:
        self.likelihood, self.terms = likelihood, terms
        self.adv_epsilon, self.weight = adv_epsilon, weight

    def __call__(self, logits: Tensor, chunk: Chunk) -> Values:
        """The values (C,), differentiable."""
        margin = None
        if self.adv_epsilon:
            _, margin = self._shift(chunk)
            logits = logits.scatter_add(1, chunk.target[:, None], margin[:, None])
        values = self.likelihood(logits, chunk)
        if margin is not None:
            values["adv_loss"] = values["nll"]
            values["nll"] = nll_without_margin(values["nll"], margin)
        for term, factor, prepared in self.terms:
            assert term.of_logits is not None
            values[term.logged] = term.of_logits(logits, chunk, prepared)
            values["losses"] = values["losses"] + factor * values[term.logged]
        return values

    def value_and_grad_(
        self, logits: Tensor, chunk: Chunk, dtype: torch.dtype, scale: Tensor | float | None
    ) -> tuple[Values, Tensor, Tensor | None]:
        """The same, with the gradient in the memory of the logits; of the unlikelihood alone."""
        delta = margin = None
        if self.adv_epsilon:
            delta, margin = self._shift(chunk)
            logits.scatter_add_(1, chunk.target[:, None], margin[:, None])
        values, grad_logits = self._value_and_grad_of_terms_(logits, chunk, dtype, scale)
        if delta is None or margin is None:
            return values, grad_logits, None
        values["adv_loss"] = values["nll"]
        values["nll"] = nll_without_margin(values["nll"], margin)
        # δ is held fixed: the target's logit depends on h by way of δ·h
        at_target = grad_logits.gather(1, chunk.target[:, None])
        return values, grad_logits, delta * at_target.to(delta.dtype)

    def _value_and_grad_of_terms_(
        self, logits: Tensor, chunk: Chunk, dtype: torch.dtype, scale: Tensor | float | None
    ) -> tuple[Values, Tensor]:
        """With the candidates C, r[c] = P[c] / (1 − P[c]), and S = Σ_{c ∈ C} r[c],

            dL/dz = ω (P − Q) + α Σ_{c ∈ C} r[c] (e_c − P) = (ω − α S) P − ω Q + α Σ_{c ∈ C} r[c] e_c

        so that it takes one more pass over the logits than the likelihood.
        """
        likelihood = self.likelihood
        if not self.terms:
            values, grad_logits, _ = likelihood.value_and_grad_(logits, chunk, dtype, scale)
            return values, grad_logits
        [(term, alpha, candidates)] = self.terms
        tokens, is_candidate = candidates.at(chunk.positions, chunk.target)  # C x U
        y = chunk.target[:, None]
        smoothing, share = likelihood.label_smoothing, likelihood.label_smoothing / logits.size(1)
        grad_logits, nll, total = softmax_grad_(
            logits, chunk.target, None, logits.dtype, smoothing
        )  # P − Q
        p = grad_logits.gather(1, tokens) + share
        beyond = rest_of_one(p)
        penalty = beyond.log().masked_fill_(~is_candidate, 0.0).sum(1).neg_()  # C
        ratio = (p / beyond).masked_fill_(~is_candidate, 0.0)  # C x U, r

        is_weighed = chunk.has_target.to(p.dtype)
        is_weighed = is_weighed if scale is None else is_weighed * scale
        omega = torch.ones_like(is_weighed)
        if likelihood.position_weight is not None:
            omega = likelihood.position_weight[chunk.positions].to(p.dtype)
        pulled = is_weighed * omega  # C, ω
        ratio *= alpha * is_weighed[:, None]
        pushed = ratio.sum(1)  # C, α S
        at_target = pulled * grad_logits.gather(1, y)[:, 0] - pushed * nll.neg().exp_()
        grad_logits.mul_((pulled - pushed)[:, None])
        if share:
            grad_logits.sub_((pushed * share)[:, None])
        grad_logits.scatter_add_(1, tokens, ratio).scatter_(1, y, at_target[:, None])

        losses = nll if total is None else smoothed(nll, total, logits.size(1), smoothing)
        values = {"losses": losses * omega + alpha * penalty, "nll": nll, term.logged: penalty}
        return values, grad_logits.to(dtype)

    def _shift(self, chunk: Chunk) -> tuple[Tensor, Tensor]:
        if chunk.features is None:
            raise ValueError("found adv_epsilon and logits alone; expected 0, or features")
        return adversarial_shift(chunk.features, self.weight[chunk.target], self.adv_epsilon)
