"""Long trainings: memory stays flat, the work of an update too, and the counts are exact to the end."""

import gc

import pytest
import torch
from fairseq.data import iterators
from fairseq.trainer import Trainer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.modules import TokenCounter
from tests.conftest import ROOT, SMALL_LM, called
from tests.small_trainings import EVERY_CRITERION, LM, batches, build, trainer_for

AGG = ("--criterion", "agg", "--agg-rare-fraction", "0.3")


def recounted(data, updates, frequency):
    """(V,) of the targets of updates `first` to `last`, counted by fairseq's own iterator in the order of its seed."""
    cfg, task, *_ = build(data, "--criterion", "cross_entropy", base=[*LM, "--seed", "3"])
    counts, number, epoch = {}, 0, 1
    while number < max(updates) + 1:
        iterator = task.get_batch_iterator(
            task.dataset("train"), max_tokens=64, max_positions=16, ignore_invalid_inputs=True,
            required_batch_size_multiple=8, seed=3, epoch=epoch,
        )  # fmt: skip
        for group in iterators.GroupedIterator(iterator.next_epoch_itr(shuffle=True), frequency):
            if number in updates:
                tokens = torch.cat([batch["target"].flatten() for batch in group])
                kept = tokens[tokens != task.target_dictionary.pad()]
                counts[number] = torch.bincount(kept, minlength=len(task.target_dictionary))
            number += 1
        epoch += 1
    return [counts[update] for update in updates]


def assert_exact(data, save, updates, window, frequency=1):
    """The window and the last update's tokens of a checkpoint, slot by slot."""
    state = Checkpoint(save / "checkpoint_last.pt").state["extra_state"]["LanguageModelingTask"]["agg_fairseq"]
    counter = state["counter"]
    assert counter["window"] == window and len(counter["sizes"]) == window and state["open_update"] == updates - 1
    *slots, last = recounted(data, range(updates - 1 - window, updates), frequency)
    sizes = counter["sizes"].tolist()
    pairs = zip(counter["tokens"].split(sizes), counter["counts"].split(sizes), strict=True)
    for expected, (tokens, counts) in zip(slots, pairs, strict=True):
        assert torch.equal(torch.zeros_like(expected).index_add_(0, tokens.long(), counts.long()), expected)
    assert torch.equal(counter["current"], last)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "marks", "window"),
    [
        (AGG, (75, 150), 15),  # one epoch
        ((*AGG, "--agg-window", 60, "--update-freq", 2), (88, 176), 60),
        (("--criterion", "face"), (75, 150), None),
        (EVERY_CRITERION["agps"], (75, 150), None),
    ],
    ids=["agg", "agg, several epochs", "face", "agps"],
)
def test_no_tensor_stays_and_counts_are_exact(lm_data, tmp_path, monkeypatch, options, marks, window):
    """Over epochs and validations: as many tensors after twice as many updates, at the same place in an epoch."""
    step, living = Trainer.train_step, {}

    def train_step(trainer, *arguments, **named):
        result = step(trainer, *arguments, **named)
        if trainer.get_num_updates() in marks:
            gc.collect()
            tensors = [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]
            living[trainer.get_num_updates()] = (len(tensors), sum(one.untyped_storage().nbytes() for one in tensors))
        return result

    monkeypatch.setattr(Trainer, "train_step", train_step)
    called(
        "train", lm_data, "--user-dir", ROOT / "agg_fairseq", *SMALL_LM, "--max-update", marks[1], "--save-dir",
        tmp_path, "--save-interval-updates", 0, "--save-interval", 10**6, *options,
    )  # fmt: skip
    (tensors, held), (later, held_later) = (living[mark] for mark in marks)
    assert (
        tensors == later and held_later - held < 1000
    )  # bytes: the batches that are left of an epoch differ in length
    if window is not None:
        assert_exact(lm_data, tmp_path, marks[1], window, frequency=2 if "--update-freq" in options else 1)


class ElementsTouched(TorchDispatchMode):
    """Counts the elements that operations read and write; views cost nothing, and count all the same."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in tree_flatten((args, kwargs, result))[0]:
            if isinstance(value, torch.Tensor):
                self.elements += value.numel()
        return result


def elements_touched(call):
    with ElementsTouched() as mode:
        call()
    return mode.elements


def filled_counter(window, tokens=20, vocabulary=100):
    """A window of that many updates, each of the same number of distinct tokens, restored as from a checkpoint."""
    counter = TokenCounter(vocabulary, window)
    drawn = torch.rand(window, vocabulary).argsort(1)[:, :tokens].int()
    state = counter.get_extra_state()
    sizes = torch.full((window,), tokens)
    counter.set_extra_state(
        state | {"sizes": sizes, "tokens": drawn.flatten(), "counts": torch.ones(drawn.numel()).int()}
    )
    return counter


def one_update(counter, tokens):
    counter.add(tokens)
    counter.close()
    counter.commit()


def test_the_work_of_an_update_does_not_depend_on_the_window():
    """Nor on how many updates went before: the elements touched are the same for K = 5 and K = 50,000."""
    tokens, found = torch.arange(20), set()
    for window in (5, 500, 50_000):
        counter = filled_counter(window)
        one_update(counter, tokens)  # the first after a resume has no newest update to make a slot of
        found |= {elements_touched(lambda counter=counter: one_update(counter, tokens)) for _ in range(12)}
        assert counter.updates == window
    assert len(found) == 1, found


def test_a_window_of_fifty_thousand_updates_holds_its_tokens_and_no_more():
    """Eight bytes for each distinct token of an update, and no storage shared with a larger one."""
    counter = filled_counter(50_000)
    for update in range(30):
        one_update(counter, torch.arange(update, update + 20))
    counter.get_extra_state()  # makes a slot of the newest update
    storages = [part.untyped_storage() for slot in counter._slots for part in slot]
    stored = {storage.data_ptr(): storage.nbytes() for storage in storages}
    assert len(stored) == 2 * 50_000 and sum(stored.values()) == 50_000 * 20 * 8
    recount = torch.zeros_like(counter.appearances)
    for tokens, counts in counter._slots:
        recount.index_add_(0, tokens.long(), counts.long())
    assert torch.equal(counter.appearances, recount) and recount.sum() == 50_000 * 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [(*AGG, "--agg-window", 20), ("--criterion", "face"), EVERY_CRITERION["agps"]], ids=lambda one: one[1]
)
def test_the_work_of_a_training_step_is_flat(lm_data, options):
    """The same batch from update 25 to update 45, with a window long full: the same elements touched."""
    trainer, _ = trainer_for(lm_data, *options)
    batch = batches(trainer.cfg, trainer.task)[0]
    touched = [elements_touched(lambda: trainer.train_step([batch])) for _ in range(46)]
    assert len(set(touched[25:])) == 1
