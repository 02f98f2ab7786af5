"""The base of all rules: the life of an update, what is counted in it, and its state."""

import functools
from collections.abc import Callable
from typing import Any, TypedDict
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..functional import Gates
from ..functional.gated_linear import is_checkpointed
from ..functional.gates import check_targets
from ..modules import TokenCounter


class GatingOptions(TypedDict, total=False):
    """The options of every rule, as of `Gating`."""

    excluded: Tensor | None
    ignore_index: int
    process_group: Any


class Gating(nn.Module):
    """A rule for the gates of each micro-batch; this one has none. A subclass overrides `gates`,
    and sets `counter` if it counts tokens over updates.

    One update is any number of micro-batches and then one end:

        logits = gated_linear(features, weight, bias, target, gating(target))  # then any loss
        loss.backward()
        optimizer.step()
        gating.commit_update()        # or, if the step did not take place: gating.roll_back_update()

    In evaluation mode or under `torch.no_grad` nothing is counted, and there are no gates. With
    several workers, all must make the same calls.

    `state_dict()` is what training needs to go on exactly from here, between updates the same on
    every worker. `torch.save`, `torch.distributed.checkpoint` and accelerate, after
    `register_for_checkpointing(gating)`, take it; safetensors, and so `prepare`, take tensors only.

    Args:
        vocabulary: V, the number of rows of the output embedding.
        excluded: (V,) bool, tokens that are never rare, such as special ones.
        ignore_index: the target at positions without one.
        process_group: the workers whose counts are summed, each with batches of its own, such as
            `mesh["dp"].get_group()` if others share a batch, as where W is sharded, or have no
            targets, as the other stages of a pipeline; None is all.
    """

    excluded: Tensor | None  # (V,) bool
    counter: TokenCounter | None  # of a rule that counts tokens per update
    # Does this optimizer train the model? None: all do that step within an update.
    is_trained_by: Callable[[torch.optim.Optimizer], bool] | None = None
    is_counted = True  # of all workers, does this one's batch count? False: another one has it too
    is_under_way = False  # was there a micro-batch in this update?
    has_stepped = False  # and a step of an optimizer since?
    is_summed = False  # are the counts of the update those of all workers?

    def __init__(
        self,
        vocabulary: int,
        *,
        excluded: Tensor | None = None,
        ignore_index: int = -100,
        process_group: Any = None,
    ) -> None:
        super().__init__()
        if excluded is not None and (excluded.dtype, len(excluded)) != (torch.bool, vocabulary):
            found = f"{excluded.dtype} {tuple(excluded.shape)}"
            raise ValueError(f"expected excluded ({vocabulary},) of torch.bool, got {found}")
        self.vocabulary, self.ignore_index = vocabulary, ignore_index
        self.process_group, self.counter = process_group, None
        self.register_buffer("excluded", excluded, persistent=False)

    def gates(self, target: Tensor | None) -> Gates | None:
        """The gates of a training micro-batch with targets (B, T), None if it is a dummy one; to be
        formed from the counts, which a resume may change."""
        return None

    def start_epoch(self, epoch: int, updates: int) -> None:
        """Tells the rule, before an epoch, its number, from 1, and how many updates it has: for a
        window of one epoch, and a group that is fixed after one."""

    # A micro-batch.

    def forward(self, target: Tensor, is_dummy: bool = False) -> Gates | None:
        """Counts the targets (B, T) of a micro-batch, and returns its gates.

        All reductions over workers within an update take place here: call this before a forward
        pass that may run out of memory. A dummy micro-batch, whose loss is multiplied by 0, is not
        counted. A position whose loss has the weight 0 pulls no row of W: it has to be ignored.

        Raises:
            ValueError: an optimizer has stepped, but the update has not ended; this is in torch's
                checkpoint; or the targets are not int64 in [0, V), or `ignore_index`.
        """
        if not (self.training and torch.is_grad_enabled()):
            return None
        if is_checkpointed():
            raise ValueError(
                "found a micro-batch in torch's checkpoint, whose backward pass would count it again; "
                "call the rule before it"
            )
        counts = () if self.counter is None else (self.counter.current,)
        if any(tensor.device != target.device for tensor in (*self.buffers(), *counts)):
            self.to(target.device)
        check_targets(target, self.vocabulary, self.ignore_index)
        if self.has_stepped and self.counter is not None:
            raise ValueError(
                "found a step of an optimizer, but the update has not ended; call commit_update() "
                "after each step (or, if it was that of another model, set is_trained_by)"
            )
        _watch_optimizers()
        _under_way.add(self)
        self.is_under_way = True
        if self.counter is not None and not is_dummy:
            self.counter.add(target)
        return self.gates(None if is_dummy else target)

    # The end of an update.

    def sum_over_workers(self, counts: Tensor) -> None:
        """Replaces counts by their sum over the workers, each of which must call this."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            if self.process_group is None and not self.is_counted:
                counts.zero_()
            torch.distributed.all_reduce(counts, group=self.process_group)

    def sum_counts(self) -> None:
        """Sums what all workers counted in the update. For a loop that saves its state before it
        knows that the step took place; `commit_update` then does not."""
        self.is_summed = True
        if self.counter is not None:
            self.sum_over_workers(self.counter.current)

    def commit_update(self) -> None:
        """Ends an update on every worker, after the step of the optimizer.

        ValueError if there was no micro-batch in it, whose counts would be none.
        """
        if self.counter is not None:
            if not (self.is_under_way or self.is_summed):
                raise ValueError(
                    "found no micro-batch in this update; expected at least one call with its "
                    "targets, in training, before each commit_update()"
                )
            if not self.is_summed:
                self.sum_over_workers(self.counter.current)
            self.counter.commit()
        self.is_under_way = self.has_stepped = self.is_summed = False

    def roll_back_update(self) -> None:
        """Forgets the micro-batches of an update whose step did not take place."""
        if self.counter is not None:
            self.counter.roll_back()
        self.is_under_way = self.has_stepped = self.is_summed = False


_under_way: WeakSet[Gating] = WeakSet()  # rules that are told of the steps of optimizers


def _note_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Called after each step of any optimizer."""
    for gating in tuple(_under_way):
        is_trained_by = gating.is_trained_by
        if gating.is_under_way and (is_trained_by is None or is_trained_by(optimizer)):
            gating.has_stepped = True


@functools.cache
def _watch_optimizers() -> None:
    register_optimizer_step_post_hook(_note_step)
