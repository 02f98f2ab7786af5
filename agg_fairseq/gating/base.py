"""The base of all rules: the life of an update, what is counted in it, and its state."""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..functional import Gates
from ..modules import TokenCounter

_optimizer_steps = 0  # in this process, since a rule was first used


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
            `mesh["dp"].get_group()` if others share a batch; None is all.
    """

    excluded: Tensor | None  # (V,) bool
    counter: TokenCounter | None  # of a rule that counts tokens per update

    def __init__(
        self,
        vocabulary: int,
        *,
        excluded: Tensor | None = None,
        ignore_index: int = -100,
        process_group: Any = None,
    ) -> None:
        super().__init__()
        self.vocabulary, self.ignore_index = vocabulary, ignore_index
        self.process_group, self.counter = process_group, None
        self.register_buffer("excluded", excluded, persistent=False)
        self.is_summed = False  # are the counts of the update those of all workers?
        self._steps_before: int | None = None  # those of optimizers before the update under way

    def gates(self, target: Tensor | None) -> Gates | None:
        """The gates of a training micro-batch with targets (B, T), None if it is a dummy one; to be
        formed from the counts, which a resume may change."""
        return None

    def start_epoch(self, epoch: int, updates: int) -> None:
        """Tells the rule the number of an epoch, from 1, and how many updates it has."""

    # A micro-batch.

    def forward(self, target: Tensor, is_dummy: bool = False) -> Gates | None:
        """Counts the targets (B, T) of a micro-batch, and returns its gates.

        All reductions over workers within an update take place here: call this before a forward
        pass that may run out of memory. A dummy micro-batch, whose loss is multiplied by 0, is not
        counted.

        Raises:
            ValueError: an optimizer has stepped, but the update has not ended.
        """
        if not self.enter(target):
            return None
        if self.counter is not None and not is_dummy:
            self.counter.add(target)
        return self.gates(None if is_dummy else target)

    def enter(self, target: Tensor) -> bool:
        """Does a micro-batch with these targets train? Its update is then under way, on their
        device."""
        if not (self.training and torch.is_grad_enabled()):
            return False
        _watch_optimizers()
        if self.counter is not None and self.has_stepped:
            raise ValueError(
                "found a step of an optimizer, but the update has not ended; call commit_update() "
                "after each step, or continue_update() after that of another model"
            )
        if self._steps_before is None:
            self._steps_before = _optimizer_steps
        counts = () if self.counter is None else (self.counter.current,)
        if any(tensor.device != target.device for tensor in (*self.buffers(), *counts)):
            self.to(target.device)
        return True

    def continue_update(self) -> None:
        """Says that the optimizers that have stepped in this update train other models."""
        if self._steps_before is not None:
            self._steps_before = _optimizer_steps

    @property
    def is_under_way(self) -> bool:
        """Was there a micro-batch in this update?"""
        return self._steps_before is not None

    @property
    def has_stepped(self) -> bool:
        """Has an optimizer stepped since the first micro-batch of this update?"""
        return self._steps_before not in (None, _optimizer_steps)

    # The end of an update.

    def sum_over_workers(self, counts: Tensor) -> None:
        """Replaces counts by their sum over the workers, each of which must call this."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(counts, group=self.process_group)

    def sum_counts(self) -> None:
        """Sums what all workers counted in the update, unless that is done. For a loop that saves
        its state before it knows that the step took place."""
        if self.counter is not None and not self.is_summed:
            self.sum_over_workers(self.counter.current)
        self.is_summed = True

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
            self.sum_counts()
            self.counter.commit()
        self._steps_before, self.is_summed = None, False

    def roll_back_update(self) -> None:
        """Forgets the micro-batches of an update whose step did not take place."""
        if self.counter is not None:
            self.counter.roll_back()
        self._steps_before, self.is_summed = None, False


@functools.cache
def _watch_optimizers() -> None:
    """Counts the steps of all optimizers from here on."""

    def count_step(*_: Any) -> None:
        global _optimizer_steps
        _optimizer_steps += 1

    register_optimizer_step_post_hook(count_step)
