"""Hooks on fairseq's task: they tell a criterion what fairseq tells only the task.

fairseq calls a criterion with a model and a batch. The task alone is told whether the batch is a dummy one (a worker
that has run out of data repeats its first batch), which update it belongs to, when the update is applied, how many
updates an epoch has, and what goes into a checkpoint. `listen` therefore replaces five methods of the criterion's own
task *instance*, and one of the optimizer: each first tells the criterion, then does what it did before.

State across a resume: `save_checkpoint` merges the task's `get_checkpoint_dict()` into the checkpoint's `extra_state`,
and `load_checkpoint` hands it back to `set_checkpoint_dict()`. The state of the criterion travels there. The stock
tools that read a model from a checkpoint never look at it.
"""

import sys
from typing import Any

from ..checkpoints.fairseq_checkpoint import STATE_KEY
from ..errors import UserError, fail, first_line


def listen(task: Any, listener: Any, train_subset: str, *, seed_has_epoch: bool = False) -> None:
    """Connects a criterion, as `listener`, to the task instance that trains it on `train_subset`.

    `seed_has_epoch`: does fairseq add the epoch to the seed of the batches (--update-ordered-indices-seed)?
    """
    _hook_iterators(task, listener, train_subset, seed_has_epoch)
    _hook_updates(task, listener)
    _hook_checkpoints(task, listener)


def _hook_iterators(task: Any, listener: Any, train_subset: str, seed_has_epoch: bool) -> None:
    """Announces the training iterator, and makes its batches those of epoch 1.

    fairseq shuffles the sentences into batches once, seeded with the epoch that the process begins in, and keeps these
    batches for the epochs that follow. So a training that resumes in epoch 3 would see other batches than one that was
    never interrupted, and from the middle of an epoch would skip other sentences than it has seen. Here the batches are
    always made as for epoch 1, where every training begins, and with the seed of epoch 1.
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

    An attempt begins where the gradient is set to zero: fairseq's trainer calls `optimizer.zero_grad()` at the start of
    each attempt, after an overflow, and where it gives up the micro-batches of a worker that ran out of memory. So what
    a criterion counts is dropped exactly when the gradient is.
    """
    original_train_step, original_optimizer_step = task.train_step, task.optimizer_step
    hooked: Any = None  # the optimizer whose zero_grad is replaced
    gradient_is_zero = True
    current: int | None = None  # number of the update under way

    def hook_zero_grad(optimizer: Any) -> None:
        nonlocal hooked, gradient_is_zero
        original_zero_grad = optimizer.zero_grad

        def zero_grad(*args: Any, **kwargs: Any) -> None:
            nonlocal gradient_is_zero
            gradient_is_zero = True
            original_zero_grad(*args, **kwargs)

        optimizer.zero_grad = zero_grad
        hooked, gradient_is_zero = optimizer, True

    def begin_update_if_due(update_num: int) -> None:
        nonlocal gradient_is_zero, current
        if gradient_is_zero or update_num != current:
            gradient_is_zero, current = False, update_num
            listener.begin_update(update_num)

    def train_step(
        sample: Any, model: Any, criterion: Any, optimizer: Any, update_num: int, ignore_grad: bool = False, **rest: Any
    ) -> Any:
        if criterion is listener:
            # The distributed trainer moves only a criterion with parameters to the device of the model.
            parameter = next(model.parameters(), None)
            if parameter is not None:
                listener.to(parameter.device)
            if optimizer is not hooked:
                hook_zero_grad(optimizer)
            begin_update_if_due(update_num)
            listener.on_micro_batch(ignore_grad)
        try:
            return original_train_step(sample, model, criterion, optimizer, update_num, ignore_grad=ignore_grad, **rest)
        except (IndexError, ValueError):
            largest, tokens = int(sample["target"].max()), len(task.target_dictionary)
            if largest >= tokens:
                fail(f"found token {largest}, but the dictionary has {tokens}; run fairseq-preprocess again")
            raise

    def optimizer_step(optimizer: Any, model: Any, update_num: int, **kwargs: Any) -> Any:
        if optimizer is not hooked:  # the criterion does not take part in this training
            return original_optimizer_step(optimizer, model=model, update_num=update_num, **kwargs)
        begin_update_if_due(update_num)  # if this worker ran out of memory in its last micro-batch
        listener.on_optimizer_step()
        result = original_optimizer_step(optimizer, model=model, update_num=update_num, **kwargs)
        listener.on_weights_changed(optimizer, model)
        return result

    task.train_step, task.optimizer_step = train_step, optimizer_step


PATIENCE = {"patience_best": "best", "patience_runs": "num_runs"}
"""What fairseq keeps of --patience in attributes of its function `should_stop_early`, by our names in a checkpoint."""


def _patience() -> dict[str, Any]:
    """The attributes of `should_stop_early`; none where the training is not by fairseq-train."""
    return vars(getattr(sys.modules.get("fairseq_cli.train"), "should_stop_early", lambda: None))


def forget_early_stopping() -> None:
    """Makes --patience begin anew, as fairseq does with the best validation under --reset-optimizer or -meters."""
    for theirs in PATIENCE.values():
        _patience().pop(theirs, None)


def _hook_checkpoints(task: Any, listener: Any) -> None:
    """Puts the criterion's state, and that of --patience, into checkpoints, and takes them from there."""
    key = type(task).__name__  # where fairseq looks for it
    original_get = getattr(task, "get_checkpoint_dict", dict)  # fairseq asks with hasattr; its own tasks have none
    original_set = getattr(task, "set_checkpoint_dict", lambda state: None)

    def get_checkpoint_dict() -> dict[str, Any]:
        saved = original_get()
        patience = {ours: _patience()[theirs] for ours, theirs in PATIENCE.items() if theirs in _patience()}
        return {**saved, key: {**saved.get(key, {}), STATE_KEY: {**listener.checkpoint_state(), **patience}}}

    def set_checkpoint_dict(state: dict[str, Any]) -> None:
        original_set(state)
        if STATE_KEY not in state:
            return
        try:
            saved = state[STATE_KEY]
            listener.load_checkpoint_state(saved)
            _patience().update({theirs: saved[ours] for ours, theirs in PATIENCE.items() if ours in saved})
        except Exception as error:  # whatever the parts of a damaged state make torch and Python raise
            fail(
                f"the state that the checkpoint holds of the criterion is damaged or of another vocabulary "
                f"({first_line(error)}); go on from another one with --restore-file"
            )

    task.get_checkpoint_dict, task.set_checkpoint_dict = get_checkpoint_dict, set_checkpoint_dict
