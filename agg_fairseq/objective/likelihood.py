"""Likelihood with weighted terms, over the updates of a training; the base of all methods."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..functional import CrossEntropyOutput, Gates, gated_cross_entropy
from ..functional.checks import check_weight
from ..functional.terms import EMBEDDING_TERMS, POSITION_TERMS, TERMS, PositionTerm
from ..modules import TokenCounter

Average = tuple[Any, Any]
"""A sum, and the number of what it is summed over: their quotient is logged."""


class MicroBatch(NamedTuple):
    """What an objective decides about a micro-batch before the forward pass of the model."""

    gates: Gates | None = None
    position_weight: Tensor | None = None  # (B, T), of the likelihood
    is_dummy: bool = False


class ObjectiveOutput(NamedTuple):
    """The loss of a micro-batch, its parts, and what to log."""

    loss: Tensor  # scalar in nats, summed over the targets
    output: Any  # `CrossEntropyOutput`, or that of another output layer
    measures: dict[str, Average]


def all_reduce(tensor: Tensor, operation: str) -> None:
    """Replaces a tensor by its "sum" or "max" over the workers of `torch.distributed`, if there are several."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        distributed.all_reduce(tensor, op=getattr(distributed.ReduceOp, operation.upper()))


class Objective(nn.Module):
    """Likelihood with the terms of `functional.terms`. A method sets `current_gates`, or overrides what follows.

    One update is any number of micro-batches and then one end:

        loss = objective(features, weight, target, bias).loss / targets  # of the whole update; each micro-batch
        loss.backward()
        optimizer.step()
        objective.end_update()                 # skipped=True if the step did not take place
        objective.discard_update()             # instead, if the update was broken off

    In evaluation mode or under `torch.no_grad` nothing is counted, and the loss is without gates, position weights and
    the margin of `adv_epsilon`.

    Where updates are numbered, and a skipped one is attempted again under the same number, call `begin_update(number)`
    at the start of each attempt and `close_update` after its last micro-batch; the next `begin_update` then ends it.

    With several workers, all must make the same calls, since a method may reduce over them.

    Args:
        vocabulary: V, the number of rows of the output embedding.
        label_smoothing: ε in [0, 1), as in fairseq: ε/(V−1) for each token but the target.
        ignore_index: the target at positions without one.
        padding_row: row of W that is not a token, left out of the cosine regularizer; None if each is one.
        all_reduce: replaces a tensor by its "sum" or "max" over the workers, in place.
        **weights: the weights of the terms by their names, `ul_alpha`, `z_loss`, `adv_epsilon`, `cosreg_gamma` and
            `mu_loss`; 0 leaves a term out. For unlikelihood, the tokens of a sequence are those of a row of the batch.

    Raises:
        ValueError: an option is out of its range.
        TypeError: an option does not exist.
    """

    predicts: ClassVar[bool] = False
    """Does `count_predictions` need the arg-max predictions?"""
    counter: TokenCounter | None  # of a method that counts tokens per update
    current_gates: Gates | None  # of the update under way; None is likelihood

    def __init__(
        self,
        vocabulary: int,
        *,
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        padding_row: int | None = None,
        all_reduce: Callable[[Tensor, str], Any] = all_reduce,
        **weights: float,
    ) -> None:
        super().__init__()
        self.weights = {term.option: 0.0 for term in TERMS}
        for name, value in weights.items():
            if name not in self.weights:
                raise TypeError(f"found the option {name}; expected one of the method or of {', '.join(self.weights)}")
            self.weights[name] = check_weight(name, value)
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"expected label_smoothing in [0, 1), got {label_smoothing}")
        self.vocabulary, self.label_smoothing = vocabulary, label_smoothing
        self.ignore_index, self.padding_row, self.all_reduce = ignore_index, padding_row, all_reduce
        self.counter = self.current_gates = None
        self.is_open = False  # has the update under way been begun?

    # What a method overrides.

    def count(self, target: Tensor) -> None:
        """Called with the targets (B, T) of each training micro-batch that is not a dummy one, before `gates`."""

    def gates(self, target: Tensor | None) -> Gates | None:
        """The gates of a training micro-batch with targets (B, T), None if it is a dummy one: those of the update."""
        return self.current_gates

    def position_weight(self, target: Tensor) -> Tensor | None:
        """Weights (B, T) of the likelihood at each position of a training micro-batch; None is 1."""
        return None

    def count_predictions(self, prediction: Tensor, target: Tensor) -> None:
        """Called, if `predicts`, with the arg-max tokens (B, T) of each training micro-batch that is no dummy one."""

    def measures(self, target: Tensor, output: CrossEntropyOutput) -> dict[str, Average]:
        """What is logged of a micro-batch beside loss, likelihood and terms of W: the terms of positions, per token."""
        terms = self.position_terms()
        tokens = (target != self.ignore_index).sum() if terms else 0
        return {term.logged: (getattr(output, term.argument).sum() / term.unit, tokens) for term in terms}

    def checkpoint_state(self) -> dict[str, Any]:
        """What training needs to go on exactly from here: tensors and plain values, the same on every worker."""
        return {}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Restores what `checkpoint_state` of this or another method returned. ValueError for a damaged state."""

    # A micro-batch.

    @property
    def is_training(self) -> bool:
        """Are gates formed, and tokens counted?"""
        return self.training and torch.is_grad_enabled()

    def position_terms(self) -> list[PositionTerm]:
        """The terms of positions that have a weight; in validation without those that are only a way to train."""
        return [
            term for term in POSITION_TERMS if self.weights[term.option] and (self.is_training or term.in_validation)
        ]

    def micro_batch(self, target: Tensor, is_dummy: bool = False) -> MicroBatch:
        """Counts the targets (B, T) of a micro-batch, and returns its gates and position weights.

        All reductions over workers within an update take place here, so that workers stay in step if this is called
        before a forward pass of the model that may run out of memory. A dummy micro-batch, whose loss is multiplied by
        0, is not counted.
        """
        if not self.is_training:
            return MicroBatch()
        self.to(target.device)
        if not self.is_open:
            self.begin_update()
        if not is_dummy:
            self.count(target)
        return MicroBatch(self.gates(None if is_dummy else target), self.position_weight(target), is_dummy)

    def forward(
        self,
        features: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        *,
        micro_batch: MicroBatch | None = None,
        denominator: int | None = None,
        scale: float = 1.0,
        softcap: float | None = None,
    ) -> ObjectiveOutput:
        """The loss of a micro-batch.

        Args:
            features: (B, T, D), the input of the output layer.
            weight: W (V, D).
            target: (B, T) int64 in [0, V), or `ignore_index`.
            bias: this, `scale` and `softcap` as of `functional.gated_cross_entropy`.
            micro_batch: the result of `micro_batch`, if that was called; None calls it.
            denominator: as of `complete`.
        """
        micro_batch = self.micro_batch(target) if micro_batch is None else micro_batch
        predicts = self.predicts and self.is_training
        terms = {t.argument: t.value(self.weights[t.option], target, self.ignore_index) for t in self.position_terms()}
        output = gated_cross_entropy(
            features,
            weight,
            target,
            bias=bias,
            gates=micro_batch.gates,
            position_weight=micro_batch.position_weight,
            label_smoothing=self.label_smoothing,
            scale=scale,
            softcap=softcap,
            ignore_index=self.ignore_index,
            predict=predicts,
            **terms,
        )
        if predicts and not micro_batch.is_dummy:
            self.count_predictions(output.prediction, target)
        if denominator is None:
            denominator = (target != self.ignore_index).sum()
        return self.complete(output, weight, denominator, self.measures(target, output))

    def complete(
        self, output: Any, weight: Tensor, denominator: int | Tensor, measures: dict[str, Average]
    ) -> ObjectiveOutput:
        """Adds the terms of W (V, D) to the loss of a micro-batch.

        Args:
            output: of the operation; its `loss` is a scalar.
            denominator: what this micro-batch adds to the number by which the loss of the whole update is divided, so
                that the terms of W count once per update.
            measures: of `output`; those of the terms are added.
        """
        loss = output.loss
        for term in EMBEDDING_TERMS:
            if gamma := self.weights[term.option]:
                value = term.value(weight, self.padding_row)
                measures[term.logged] = (value.detach(), 1)
                loss = loss + denominator * (gamma * value)
        return ObjectiveOutput(loss, output, measures)

    # The life of an update.

    def begin_update(self, number: int | None = None) -> None:
        """Begins an attempt at an update; in a loop without numbers, the first micro-batch does.

        A higher number than before says that the previous update took place, the same one that it was skipped.
        """
        self.is_open = True
        if self.counter is not None and number is not None:
            self.counter.begin(number)

    def close_update(self) -> None:
        """All workers have seen all micro-batches of the update: sums their counts."""
        if self.counter is not None:
            self.all_reduce(self.counter.current, "sum")

    def end_update(self, skipped: bool = False) -> None:
        """Ends an update, after the step of the optimizer. Every worker must call it equally often.

        `skipped`: the step did not take place, because a gradient overflowed in half precision; the tokens of the
        update are then forgotten.
        """
        self.is_open = False
        if self.counter is not None:
            self.close_update()
            if skipped:
                self.counter.discard()
            else:
                self.counter.commit()

    def discard_update(self) -> None:
        """Forgets the micro-batches of an update that was broken off."""
        self.is_open = False
        if self.counter is not None:
            self.counter.discard()
