"""Long trainings: memory stays flat."""

import gc

import pytest
import torch
from fairseq.trainer import Trainer

from tests.conftest import SMALL_LM, called
from tests.small_trainings import EVERY_CRITERION


@pytest.mark.slow
def test_memory_is_flat(lm_data, tmp_path, monkeypatch):
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
        "--save-interval", 10**6, EVERY_CRITERION["agg"], "--agg-window", 15,
    )  # fmt: skip
    (tensors, held), (later, held_later) = living.values()
    # bytes: the batches that are left of an epoch differ in length
    assert tensors == later and held_later - held < 1000
