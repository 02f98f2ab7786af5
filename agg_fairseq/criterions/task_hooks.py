"""What fairseq tells only the task: update numbers, dummy batches, the data's length, checkpoints.

fairseq calls a criterion with a model and a batch. Whether the batch is a dummy one (a worker that has run out of
data repeats its first), which update it belongs to, when the update is applied, how many updates an epoch has, and
what goes into a checkpoint is known to the task. A criterion that needs them puts itself between: four methods of its
own task *instance* first tell the criterion, then do what they did.

The state survives a resume through fairseq's own door: `save_checkpoint` merges the task's `get_checkpoint_dict()`
into the checkpoint's `extra_state`, and `load_checkpoint` hands it back to `set_checkpoint_dict()`. The stock tools
that read a model from a checkpoint never look there.

The batches survive it too. fairseq shuffles the sentences into batches once, with the number of the epoch that the
process begins in, and keeps them for the epochs that follow; so a training that goes on in epoch 3 would see other
batches than one that came there by itself, and from the middle of an epoch skip other sentences than it has seen. Here
they are made as for epoch 1, where every training begins, and with the seed of epoch 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..errors import UserError, fail

STATE_KEY = "agg_fairseq"


class TaskListener(Protocol):
    """A criterion that listens to its task."""

    def on_train_iterator(self, iterator: Any) -> None:
        """The training split's `EpochBatchIterator` has been made."""

    def on_train_step(self, update_num: int, is_dummy: bool) -> None:
        """A micro-batch of update `update_num` is about to be seen."""

    def on_optimizer_step(self) -> None:
        """All micro-batches of the update have been seen, on all workers, and its gradient is finite."""

    def on_weights_changed(self, optimizer: Any) -> None:
        """The optimiser has taken its step."""

    def checkpoint_state(self) -> dict[str, Any]:
        """Tensors and plain values to be saved; the same on every worker."""

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Takes back what `checkpoint_state` returned; a ValueError where it cannot be that."""


def listen(task: Any, listener: TaskListener, train_subset: str, *, seed_has_epoch: bool = False) -> None:
    """Connects a criterion to its task.

    Args:
        task: the `FairseqTask` instance that trains the criterion.
        listener: the criterion.
        train_subset: name of the training split.
        seed_has_epoch: does fairseq add the epoch to the seed of the batches (--update-ordered-indices-seed)?
    """
    _listen_to_iterators(task, listener, train_subset, seed_has_epoch)
    _listen_to_steps(task, listener)
    _listen_to_checkpoints(task, listener)


def _listen_to_iterators(task: Any, listener: TaskListener, train_subset: str, seed_has_epoch: bool) -> None:
    original = task.get_batch_iterator

    def get_batch_iterator(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        if dataset is not task.datasets.get(train_subset):
            return original(dataset, *args, **kwargs)
        iterator = _with_batches_of_first_epoch(task, original, seed_has_epoch, dataset, *args, **kwargs)
        _or_fail(listener.on_train_iterator, iterator)
        return iterator

    task.get_batch_iterator = get_batch_iterator


def _with_batches_of_first_epoch(
    task: Any,
    original: Callable[..., Any],
    seed_has_epoch: bool,
    dataset: Any,
    *args: Any,
    epoch: int = 1,
    **kwargs: Any,
) -> Any:
    """The iterator of an epoch; its batches are those of epoch 1 wherever fairseq keeps them over the epochs."""
    made_anew = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
    known = dataset in task.dataset_to_epoch_iter
    if made_anew or known or getattr(task.cfg, "rebuild_batches", False) or not task.can_reuse_epoch_itr(dataset):
        return original(dataset, *args, epoch=epoch, **kwargs)
    if seed_has_epoch and "seed" in kwargs:
        kwargs["seed"] -= epoch - 1
    iterator = original(dataset, *args, epoch=1, **kwargs)
    iterator.epoch = epoch
    dataset.set_epoch(epoch)
    return iterator


def _or_fail(call: Callable[..., None], *arguments: Any) -> None:
    """What is the user's to mend ends in one line: fairseq would print a traceback."""
    try:
        call(*arguments)
    except UserError as error:
        fail(str(error))


def _listen_to_steps(task: Any, listener: TaskListener) -> None:
    original_train_step, original_optimizer_step = task.train_step, task.optimizer_step

    def train_step(
        sample: Any,
        model: Any,
        criterion: Any,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
        **kwargs: Any,
    ) -> Any:
        if criterion is listener:
            _follow(model, listener)
            listener.on_train_step(update_num, ignore_grad)
        return original_train_step(sample, model, criterion, optimizer, update_num, ignore_grad=ignore_grad, **kwargs)

    def optimizer_step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        listener.on_optimizer_step()
        result = original_optimizer_step(optimizer, *args, **kwargs)
        listener.on_weights_changed(optimizer)
        return result

    task.train_step, task.optimizer_step = train_step, optimizer_step


def _follow(model: Any, listener: Any) -> None:
    """Moves the criterion's buffers to the model's device: the distributed trainer moves only those with parameters."""
    parameter = next(model.parameters(), None)
    if parameter is not None:
        listener.to(parameter.device)


def _listen_to_checkpoints(task: Any, listener: TaskListener) -> None:
    key = type(task).__name__  # where fairseq looks it up
    original_get = getattr(task, "get_checkpoint_dict", dict)
    original_set = getattr(task, "set_checkpoint_dict", lambda state: None)

    def get_checkpoint_dict() -> dict[str, Any]:
        saved = original_get()
        return {**saved, key: {**saved.get(key, {}), STATE_KEY: listener.checkpoint_state()}}

    def set_checkpoint_dict(state: dict[str, Any]) -> None:
        original_set(state)
        if STATE_KEY in state:
            _load_or_fail(listener, state[STATE_KEY])

    task.get_checkpoint_dict, task.set_checkpoint_dict = get_checkpoint_dict, set_checkpoint_dict


def _load_or_fail(listener: TaskListener, state: Any) -> None:
    try:
        if not isinstance(state, dict):
            raise ValueError(f"expected values by name, got {type(state).__name__}")
        listener.load_checkpoint_state(state)
    except ValueError as error:
        fail(
            f"the state that the checkpoint holds of the criterion is damaged ({error}); go on from another one with "
            "--restore-file"
        )
