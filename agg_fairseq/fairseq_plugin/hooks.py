"""Hooks on fairseq's task: they tell a criterion what fairseq tells only the task.

fairseq calls a criterion with a model and a batch. The task alone is told whether the batch is a
dummy one (a worker that has run out of data repeats its first batch), which update it belongs to,
when the update is applied, how many updates an epoch has, and what goes into a checkpoint. `listen`
therefore replaces five methods of the criterion's own task *instance*: each first tells the
criterion, then does what it did before.

State across a resume: `save_checkpoint` merges the task's `get_checkpoint_dict()` into the
checkpoint's `extra_state`, and `load_checkpoint` hands it back to `set_checkpoint_dict()`. The
state of the criterion travels there. The stock tools that read a model from a checkpoint never look
at it.
"""

import atexit
from typing import Any

import torch

from ..checkpoints.fairseq_checkpoint import STATE_KEY
from ..errors import UserError, fail


def listen(task: Any, listener: Any, train_subset: str, *, seed_has_epoch: bool = False) -> None:
    """Connects a criterion, as `listener`, to the task instance that trains it on `train_subset`.

    `seed_has_epoch`: does fairseq add the epoch to the seed of the batches
    (--update-ordered-indices-seed)?
    """
    _hook_iterators(task, listener, train_subset, seed_has_epoch)
    _hook_updates(task, listener)
    _hook_checkpoints(task, listener)
    if torch.distributed.is_initialized() and torch.distributed.get_backend() == "gloo":
        atexit.register(_close_process_group)


def _close_process_group() -> None:
    """Ends gloo's threads before the process ends: fairseq leaves them running, and torch may then
    abort it."""
    # not yet closed after an earlier training of this process
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _hook_iterators(task: Any, listener: Any, train_subset: str, seed_has_epoch: bool) -> None:
    """Announces the training iterator, and makes its batches those of epoch 1.

    fairseq shuffles the sentences into batches once, seeded with the epoch that the process begins
    in, and keeps these batches for the epochs that follow. So a training that resumes in epoch 3
    would see other batches than one that was never interrupted, and from the middle of an epoch
    would skip other sentences than it has seen. Here the batches are always made as for epoch 1,
    where every training begins, and with the seed of epoch 1.
    """
    original = task.get_batch_iterator

    def get_batch_iterator(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        if dataset is not task.datasets.get(train_subset):
            return original(dataset, *args, **kwargs)
        made_for_each_epoch = (
            kwargs.get("disable_iterator_cache")
            or kwargs.get("update_epoch_batch_itr")
            or getattr(task.cfg, "rebuild_batches", False)
            or not task.can_reuse_epoch_itr(dataset)
        )
        if made_for_each_epoch or dataset in task.dataset_to_epoch_iter:
            iterator = original(dataset, *args, **kwargs)
        else:
            epoch = kwargs.pop("epoch", 1)
            if seed_has_epoch and "seed" in kwargs:
                kwargs["seed"] -= epoch - 1
            iterator = original(dataset, *args, epoch=1, **kwargs)
            iterator.epoch = epoch
            dataset.set_epoch(epoch)
        try:
            listener.on_train_iterator(iterator)
        except UserError as error:  # fairseq would print a traceback
            fail(str(error))
        return iterator

    task.get_batch_iterator = get_batch_iterator


def _hook_updates(task: Any, listener: Any) -> None:
    """Announces attempts at updates, micro-batches and optimizer steps.

    An attempt begins where no parameter has a gradient: fairseq's trainer sets all to None at the
    start of each attempt, after an overflow, and where it gives up the micro-batches of a worker
    that ran out of memory. So what a criterion counts is dropped exactly when the gradient is.
    """
    original_train_step, original_optimizer_step = task.train_step, task.optimizer_step
    current: int | None = None  # number of the update under way; None: another criterion is trained

    def start_update_if_due(model: Any, update_num: int) -> None:
        nonlocal current
        if update_num != current or all(parameter.grad is None for parameter in model.parameters()):
            current = update_num
            listener.start_update(update_num)

    def train_step(
        sample: Any,
        model: Any,
        criterion: Any,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
        **rest: Any,
    ) -> Any:
        if criterion is listener:
            # The distributed trainer moves only a criterion with parameters to the device of the
            # model.
            listener.to(next(model.parameters()).device)
            start_update_if_due(model, update_num)
            listener.is_dummy = ignore_grad
        return original_train_step(
            sample, model, criterion, optimizer, update_num, ignore_grad=ignore_grad, **rest
        )

    def optimizer_step(optimizer: Any, model: Any, update_num: int, **kwargs: Any) -> Any:
        if current is None:
            return original_optimizer_step(optimizer, model=model, update_num=update_num, **kwargs)
        # if this worker ran out of memory in its last micro-batch
        start_update_if_due(model, update_num)
        listener.on_optimizer_step()
        result = original_optimizer_step(optimizer, model=model, update_num=update_num, **kwargs)
        listener.on_weights_changed(optimizer, model)
        return result

    task.train_step, task.optimizer_step = train_step, optimizer_step


def _hook_checkpoints(task: Any, listener: Any) -> None:
    """Puts the criterion's state into checkpoints, and takes it from there."""
    key = type(task).__name__  # where fairseq looks for it
    # fairseq asks with hasattr; its own tasks have none
    original_get = getattr(task, "get_checkpoint_dict", dict)
    original_set = getattr(task, "set_checkpoint_dict", lambda state: None)

    def get_checkpoint_dict() -> dict[str, Any]:
        saved = original_get()
        return {**saved, key: {**saved.get(key, {}), STATE_KEY: listener.checkpoint_state()}}

    def set_checkpoint_dict(state: dict[str, Any]) -> None:
        original_set(state)
        if STATE_KEY in state:
            listener.load_checkpoint_state(state[STATE_KEY])

    task.get_checkpoint_dict, task.set_checkpoint_dict = get_checkpoint_dict, set_checkpoint_dict
