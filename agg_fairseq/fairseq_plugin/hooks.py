"""The hooks by which fairseq's task tells a criterion of updates, epochs and checkpoints.

The task alone is told whether a batch is a dummy one (a worker that has run out of data repeats its
first batch), which update it belongs to, when the update is applied, how many updates an epoch has,
and what goes into a checkpoint. So `install_hooks` wraps five methods of the task *instance*.
"""

import atexit
from typing import Any

import torch

from ..checkpoints.fairseq_checkpoint import STATE_KEY
from ..errors import UserError, fail


def install_hooks(task: Any, listener: Any) -> None:
    """Connects a `GatedCriterion`, as `listener`, to the task instance that trains it."""
    _hook_iterators(task, listener)
    _hook_updates(task, listener)
    _hook_checkpoints(task, listener)
    if torch.distributed.is_initialized() and torch.distributed.get_backend() == "gloo":
        atexit.register(_close_process_group)


def _close_process_group() -> None:
    """Ends gloo's threads, which fairseq leaves running, since torch may abort a process with
    them."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _hook_iterators(task: Any, listener: Any) -> None:
    """Announces the training iterator, and makes its batches those of epoch 1.

    fairseq shuffles the sentences into batches once, seeded with the epoch that the process begins
    in. So a training that resumes in epoch 3 would see other batches, and from the middle of an
    epoch would skip other sentences than it has seen. Here the batches and their seed are those of
    epoch 1; --update-ordered-indices-seed adds the epoch.
    """
    original = task.get_batch_iterator

    def get_batch_iterator(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        if dataset is not task.datasets.get(listener.cfg.train_subset):
            return original(dataset, *args, **kwargs)
        listener.max_positions = kwargs.get("max_positions")
        epoch = kwargs.get("epoch", 1)  # a cached iterator still has the number before it
        made_for_each_epoch = (
            kwargs.get("disable_iterator_cache")
            or kwargs.get("update_epoch_batch_itr")
            or getattr(task.cfg, "rebuild_batches", False)
            or not task.can_reuse_epoch_itr(dataset)
        )
        if made_for_each_epoch or dataset in task.dataset_to_epoch_iter:
            iterator = original(dataset, *args, **kwargs)
        else:
            kwargs.pop("epoch", None)
            if listener.cfg.update_ordered_indices_seed and "seed" in kwargs:
                kwargs["seed"] -= epoch - 1
            iterator = original(dataset, *args, epoch=1, **kwargs)
            iterator.epoch = epoch
            dataset.set_epoch(epoch)
        try:
            listener.on_train_iterator(iterator, epoch)
        except UserError as error:  # fairseq would print a traceback
            fail(str(error))
        return iterator

    task.get_batch_iterator = get_batch_iterator


def _hook_updates(task: Any, listener: Any) -> None:
    """Announces attempts at updates, micro-batches and optimizer steps.

    An attempt begins where no parameter has a gradient: fairseq's trainer sets all to None at the
    start, after an overflow, and where it gives up the micro-batches of a worker that ran out of
    memory. So what a criterion counts is dropped exactly when the gradient is.
    """
    original_train_step, original_optimizer_step = task.train_step, task.optimizer_step
    current: int | None = None  # the update under way; None: another criterion is trained

    def train_step(
        sample: Any,
        model: Any,
        criterion: Any,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
        **rest: Any,
    ) -> Any:
        nonlocal current
        if criterion is listener:
            if update_num != current or all(one.grad is None for one in model.parameters()):
                current = update_num
                listener.start_update(update_num)
            listener.is_dummy = ignore_grad
        return original_train_step(
            sample, model, criterion, optimizer, update_num, ignore_grad=ignore_grad, **rest
        )

    def optimizer_step(optimizer: Any, model: Any, update_num: int, **kwargs: Any) -> Any:
        if current is None:
            return original_optimizer_step(optimizer, model=model, update_num=update_num, **kwargs)
        # if this worker ran out of memory last
        if all(one.grad is None for one in model.parameters()):
            listener.start_update(update_num)
        # all workers have seen all micro-batches; with --amp the gradient may still overflow
        listener.gating.sum_counts()
        result = original_optimizer_step(optimizer, model=model, update_num=update_num, **kwargs)
        if listener.on_weights_changed is not None:
            listener.on_weights_changed(optimizer, model)
        return result

    task.train_step, task.optimizer_step = train_step, optimizer_step


def _hook_checkpoints(task: Any, listener: Any) -> None:
    """Puts the criterion's state into checkpoints, and takes it from there.

    `save_checkpoint` merges the task's `get_checkpoint_dict()` into the checkpoint's `extra_state`,
    and `load_checkpoint` hands it back to `set_checkpoint_dict()`.
    """
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
