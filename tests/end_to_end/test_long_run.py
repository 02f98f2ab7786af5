"""Long trainings: memory stays flat, and the work of an update too."""

import gc

import pytest
import torch
from fairseq.trainer import Trainer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from agg_fairseq.modules import TokenCounter
from tests.conftest import SMALL_LM, called
from tests.small_trainings import EVERY_CRITERION


class ElementsTouched(TorchDispatchMode):
    """Counts the elements that operations read and write, also those of views."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in tree_flatten((args, kwargs, result))[0]:
            if isinstance(value, torch.Tensor):
                self.elements += value.numel()
        return result


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [(*EVERY_CRITERION["agg"], "--agg-window", 15), EVERY_CRITERION["face"]],
    ids=lambda one: one[1],
)
def test_memory_is_flat(lm_data, tmp_path, monkeypatch, options):
    """As many tensors after twice as many updates, at the same place in an epoch."""
    step, marks, living = Trainer.train_step, (75, 150), {}

    def train_step(trainer, *arguments, **named):
        result = step(trainer, *arguments, **named)
        if trainer.get_num_updates() in marks:
            gc.collect()
            tensors = held = 0
            for one in gc.get_objects():
                if isinstance(one, torch.Tensor):
                    tensors, held = tensors + 1, held + one.untyped_storage().nbytes()
            living[trainer.get_num_updates()] = tensors, held
        return result

    monkeypatch.setattr(Trainer, "train_step", train_step)
    called(
        "train", lm_data, *SMALL_LM, "--max-update", marks[1], "--save-dir", tmp_path, "--save-interval-updates", 0,
        "--save-interval", 10**6, *options,
    )  # fmt: skip
    (tensors, held), (later, held_later) = living.values()
    # bytes: the batches that are left of an epoch differ in length
    assert tensors == later and held_later - held < 1000


def test_the_work_and_memory_of_a_counter_do_not_depend_on_what_went_before():
    found = set()
    for window in (5, 4000):
        counter = TokenCounter(100, window)
        for tokens in torch.rand(window, 100).argsort(1)[:, :20]:
            counter.add(tokens)
            counter.commit()
        for first in range(31):
            with ElementsTouched() as mode:
                counter.add(torch.arange(first, first + 20))
                counter.commit()
            found.add(mode.elements)
        assert counter.updates == window
    assert len(found) == 1, found
    assert len(counter._slots) == 4000
    assert sum(len(packed) for packed, _ in counter._slots) < 4000 * 60
