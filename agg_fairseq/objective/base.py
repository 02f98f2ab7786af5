"""Likelihood with weighted terms, over the updates of a training; the base of all methods."""

import math
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional import (
    Chunk,
    Gates,
    Likelihood,
    Loss,
    Values,
    adversarial_margin,
    chunked,
    cosine_regularizer,
    previous_tokens,
    top_odds,
    unlikelihood,
)
from ..functional.compiling import compiled
from ..functional.losses import check_weights
from ..modules import TokenCounter

TERMS = ("ul_alpha", "adv_epsilon", "cosreg_gamma")
"""The options of an `Objective` that are weights of terms."""
Average = tuple[Any, Any]
"""A sum and its number of summands: their quotient is logged."""


class MicroBatch(NamedTuple):
    """What an objective decides about a micro-batch before the model runs."""

    gates: Gates | None = None
    position_weight: Tensor | None = None  # (B, T), of the likelihood
    is_dummy: bool = False


class ObjectiveOutput(NamedTuple):
    """The loss of a micro-batch, its parts, and what to log."""

    loss: Tensor  # scalar in nats, summed over the targets
    losses: Tensor  # (B, T), its summands, without the terms of W
    nll: Tensor  # (B, T), −log P of the targets
    logged: dict[str, Average]


def has_workers() -> bool:
    """Is this process one of several?"""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class Objective(nn.Module):
    """Likelihood with weighted terms. A subclass sets `current_gates`, or overrides what follows.

    `state_dict()` is what training needs to go on exactly from here, between updates the same on
    every worker. `torch.save`, `torch.distributed.checkpoint` and accelerate, after
    `register_for_checkpointing(objective)`, take it; safetensors, and so `prepare`, take tensors only.

    One update is any number of micro-batches and then one end:

        loss = objective(features, weight, target, bias).loss / targets  # those of the whole update
        loss.backward()
        optimizer.step()
        objective.commit_update()              # or, if the step did not take place: objective.roll_back_update()

    In evaluation mode or under `torch.no_grad` nothing is counted, and the loss is without gates,
    position weights and the margin of `adv_epsilon`. With several workers, all must make the same
    calls.

    Args:
        vocabulary: V, the number of rows of the output embedding.
        label_smoothing: ε in [0, 1], as in torch: ε/V for each token, the rest for the target.
        ul_alpha: weight of the unlikelihood of tokens seen earlier in their sequence, a row of the
            batch (Welleck et al. 2020); 0, here and in what follows, leaves a term out.
        adv_epsilon: ε of adversarial training, as of `functional.adversarial_margin` (Wang et al.
            2019).
        cosreg_gamma: weight of `functional.cosine_regularizer` of W, once per update and not gated
            (Gao et al. 2019).
        ignore_index: the target at positions without one.
        padding_row: row of W that is not a token, left out of the cosine regularizer.
        process_group: the workers whose counts are summed, each with batches of its own; None is
            all.

    Raises:
        ValueError: an option is out of its range.
    """

    predicts: ClassVar[bool] = False
    """Does `count_predictions` need the arg-max predictions?"""
    counter: TokenCounter | None  # of a method that counts tokens per update
    current_gates: Gates | None  # set from outside, for the updates that follow; None is likelihood

    def __init__(
        self,
        vocabulary: int,
        *,
        label_smoothing: float = 0.0,
        ul_alpha: float = 0.0,
        adv_epsilon: float = 0.0,
        cosreg_gamma: float = 0.0,
        ignore_index: int = -100,
        padding_row: int | None = None,
        process_group: Any = None,
    ) -> None:
        super().__init__()
        self.ul_alpha, self.adv_epsilon, self.cosreg_gamma = ul_alpha, adv_epsilon, cosreg_gamma
        check_weights(label_smoothing, **{name: getattr(self, name) for name in TERMS})
        self.vocabulary, self.label_smoothing = vocabulary, label_smoothing
        self.ignore_index, self.padding_row = ignore_index, padding_row
        self.process_group = process_group
        self._is_checked = False
        self.weight_versions: dict[int, int] = {}  # of each W, in the update under way
        self.counter = self.current_gates = None

    # What a subclass overrides.

    def gates(self, target: Tensor | None) -> Gates | None:
        """The gates of a training micro-batch with targets (B, T), None if it is a dummy one; to be
        formed from the counts, which a resume may change."""
        return self.current_gates

    def count_predictions(self, prediction: Tensor, target: Tensor) -> None:
        """Called, if `predicts`, with the arg-max (B, T) of micro-batches that are counted."""

    def to_log(self, gates: Gates | None) -> dict[str, Average]:
        """The values to log of a micro-batch with these gates."""
        return {}

    # A micro-batch.

    @property
    def is_training(self) -> bool:
        """Are gates formed, and tokens counted?"""
        return self.training and torch.is_grad_enabled()

    def micro_batch(self, target: Tensor, is_dummy: bool = False) -> MicroBatch:
        """Counts the targets (B, T) of a micro-batch, and returns its gates and position weights.

        All reductions over workers within an update take place here: call this before a forward
        pass that may run out of memory. A dummy micro-batch, whose loss is multiplied by 0, is not
        counted.
        """
        if not self.is_training:
            return MicroBatch()
        counts = () if self.counter is None else (self.counter.current,)
        if any(tensor.device != target.device for tensor in (*self.buffers(), *counts)):
            self.to(target.device)
        if self.counter is not None and not self.predicts and not is_dummy:
            self.counter.add(target)
        return MicroBatch(self.gates(None if is_dummy else target), is_dummy=is_dummy)

    # Its loop depends on the targets. torch.compiler.disable would import the compiler at once.
    @torch._disable_dynamo
    def forward(
        self,
        features: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        *,
        micro_batch: MicroBatch | None = None,
        denominator: int | None = None,
    ) -> ObjectiveOutput:
        """The loss of a micro-batch, by `functional.chunked`.

        Args:
            features: (B, T, D), the input of the output layer.
            weight: W (V, D).
            target: (B, T) int64 in [0, V), or `ignore_index`.
            bias: b (V,), gated like W.
            micro_batch: the result of `micro_batch`, for the same targets; None calls it.
            denominator: as of `complete`.
        """
        if micro_batch is None:
            micro_batch = self.micro_batch(target)
            if self.counter is not None and self.is_training:
                self._check_update(features, weight)
        omega = micro_batch.position_weight
        largest = 1.0 if omega is None or not omega.numel() else omega.abs().max().clamp(min=1e-6)
        loss, values = chunked(
            self.loss(weight, target, omega),
            features,
            weight,
            target,
            bias=bias,
            gates=micro_batch.gates,
            ignore_index=self.ignore_index,
            bound=self.ul_alpha + largest,
        )
        return self.complete(loss, values, weight, target, micro_batch, denominator)

    def from_logits(
        self,
        logits: Tensor,
        weight: Tensor,
        target: Tensor,
        micro_batch: MicroBatch,
        denominator: int | None = None,
    ) -> ObjectiveOutput:
        """The loss of logits (B, T, V), which a model formed by `functional.gated_linear` with the
        gates of the micro-batch, and may have changed since.

        Other arguments as those of `forward`. ValueError with `adv_epsilon`, which needs features.
        """
        if self.adv_epsilon and self.is_training:
            raise ValueError(
                "found adv_epsilon, which needs features; expected 0 with logits alone"
            )
        y, has_target = target.reshape(-1), target.reshape(-1) != self.ignore_index
        chunk = Chunk(
            torch.arange(len(y), device=y.device), y.where(has_target, 0), has_target, y[:0]
        )
        logits = logits.flatten(0, -2)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        values = self.loss(weight, target, micro_batch.position_weight)(logits, chunk)
        values = {name: one.where(has_target, 0).view(target.shape) for name, one in values.items()}
        return self.complete(
            values["losses"].sum(), values, weight, target, micro_batch, denominator
        )

    def loss(self, weight: Tensor, target: Tensor, position_weight: Tensor | None) -> Loss:
        """The loss of logits for a micro-batch with targets (B, T)."""
        omega = None if position_weight is None else position_weight.reshape(-1)
        likelihood = Likelihood(self.label_smoothing, omega, self.predicts and self.is_training)
        epsilon = self.adv_epsilon if self.is_training else 0.0
        if not (epsilon or self.ul_alpha):
            return likelihood
        candidates = previous_tokens(target, self.ignore_index) if self.ul_alpha else None

        def terms(logits: Tensor, chunk: Chunk) -> Values:
            lowered, margin = logits, None
            if epsilon:
                margin = adversarial_margin(chunk.features, weight[chunk.target], epsilon)
                lowered = logits.scatter_add(1, chunk.target[:, None], margin[:, None])
            odds = compiled(top_odds, (lowered,))
            values = likelihood(lowered, chunk, odds)
            if margin is not None:
                values["adv_loss"] = values["nll"]
                values["nll"] = nll_without_margin(values["nll"], margin)
            if candidates is not None:
                tokens = candidates.at(chunk.positions, chunk.target)
                values["ul_loss"] = compiled(unlikelihood, (lowered, *tokens, odds))
                values["losses"] = values["losses"] + self.ul_alpha * values["ul_loss"]
            return values

        return terms

    def complete(
        self,
        loss: Tensor,
        values: Values,
        weight: Tensor,
        target: Tensor,
        micro_batch: MicroBatch,
        denominator: int | None = None,
    ) -> ObjectiveOutput:
        """Adds the terms of W (V, D) to the loss of a micro-batch with targets (B, T), and counts
        its predictions.

        Args:
            loss: the sum of `values["losses"]`, which carries the gradient.
            values: of the positions, (B, T): `losses`, `nll`, maybe a `prediction`; all others are
                logged, in bits per target.
            denominator: what this micro-batch adds to the number by which the loss of the update is
                divided, so that the terms of W count once per update; None is the number of
                targets.
        """
        if "prediction" in values and not micro_batch.is_dummy:
            self.count_predictions(values["prediction"], target)
        targets = (target != self.ignore_index).sum()
        logged = self.to_log(micro_batch.gates)
        for name, value in values.items():
            if name not in ("loss", "losses", "nll", "prediction"):
                logged[name] = value.detach().sum() / math.log(2), targets
        if self.cosreg_gamma:
            cosreg = cosine_regularizer(weight, padding_row=self.padding_row)
            logged["cosreg"] = cosreg.detach(), 1
            factor = (
                targets
                if denominator is None
                else torch.full_like(targets, denominator, dtype=loss.dtype)
            )
            # a loss that is divided by 0 has a gradient of 0, and not 0 · ∞
            loss = loss + (factor * self.cosreg_gamma * cosreg).where(factor > 0, 0)
        return ObjectiveOutput(loss, values["losses"].detach(), values["nll"].detach(), logged)

    # The end of an update.

    def _check_update(self, features: Tensor, weight: Tensor) -> None:
        """Raises ValueError if W has changed since the last micro-batch, though the update has not
        ended; and as `check_workers`, once."""
        if weight.is_leaf and weight._version != self.weight_versions.setdefault(
            id(weight), weight._version
        ):
            raise ValueError(
                "found that the weights have changed, but the update has not ended; call "
                "commit_update() after each step of the optimizer"
            )
        if not self._is_checked:
            self._is_checked = True
            self.check_workers(features)

    def check_workers(self, features: Tensor) -> None:
        """Raises ValueError for the features of a model that works on one batch in several workers,
        if it is not known which. (FSDP gathers its parameters before.)"""
        if has_workers() and self.process_group is None and depends_on_shards(features):
            raise ValueError(
                "found a model with sharded parameters, whose workers may have the same batch; "
                "expected process_group, the workers with batches of their own, such as "
                'mesh["dp"].get_group()'
            )

    def sum_over_workers(self, counts: Tensor) -> None:
        """Replaces counts by their sum over the workers, each of which must call this."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(counts, group=self.process_group)

    def sum_counts(self) -> None:
        """Sums what all workers counted in the update."""
        if self.counter is not None:
            self.sum_over_workers(self.counter.current)

    def commit_update(self) -> None:
        """Ends an update on every worker, after the step of the optimizer."""
        self.weight_versions.clear()
        if self.counter is not None:
            self.sum_counts()
            self.counter.commit()

    def roll_back_update(self) -> None:
        """Forgets the micro-batches of an update whose step did not take place."""
        self.weight_versions.clear()
        if self.counter is not None:
            self.counter.roll_back()


def depends_on_shards(features: Tensor) -> bool:
    """Does autograd lead from features to a parameter of which each worker holds a part?"""
    waiting, seen = [features.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(getattr(node, "variable", None), "device_mesh"):
            return True
        waiting += [function for function, _ in node.next_functions]
    return False


def nll_without_margin(nll: Tensor, margin: Tensor) -> Tensor:
    """−log P[y] (C,), from −log P'[y] where δ·h = `margin` (C,) was added to the target's logit.

    With A the sum of exp z over the other tokens, −log P'[y] = softplus(log A − z[y] − δ·h), so
    that log A − z[y] − δ·h is −log P' + log(1 − P').
    """
    return F.softplus(nll + torch.log(-torch.expm1(-nll)) + margin).detach()
