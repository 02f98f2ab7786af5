"""Long trainings: memory stays flat, the work of an update too, and the counts are exact to the end."""

import json
from pathlib import Path

import pytest
import torch
from fairseq.data import iterators
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.modules import TokenCounter
from tests.conftest import SMALL_LM, run_command
from tests.small_trainings import LM, batches, build, trainer_for

PROBE = """
import gc, json, os, sys, tracemalloc
import torch
from fairseq.trainer import Trainer
from fairseq_cli.train import cli_main

found_at, marks, traced = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
del sys.argv[1:4]
step, found = Trainer.train_step, {}

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def ours():
    only = [tracemalloc.Filter(True, "*/agg_fairseq/*")]
    return sum(s.size for s in tracemalloc.take_snapshot().filter_traces(only).statistics("filename"))

def train_step(trainer, *arguments, **named):
    result = step(trainer, *arguments, **named)
    if trainer.get_num_updates() in marks:
        gc.collect()
        objects = gc.get_objects()
        found[trainer.get_num_updates()] = {
            "resident": resident(),
            "tensors": sum(isinstance(one, torch.Tensor) for one in objects),
            "objects": len(objects),
            "ours": ours() if traced else 0,
        }
    return result

if traced:
    tracemalloc.start()
Trainer.train_step = train_step
cli_main()
with open(found_at, "w") as file:
    json.dump(found, file)
"""
CRITERIONS = {
    "agg": ("--criterion", "agg", "--agg-rare-fraction", "0.3"),
    "face": ("--criterion", "face"),
    "agps": ("--criterion", "agps", "--agps-rare-rank", "20", "--agps-mu1", "30", "--agps-mu2", "5"),
    "cross_entropy": ("--criterion", "cross_entropy"),
}
GROWTH = 5 * 2**20
"""How much memory may be larger after ten times as many updates: less than one update of this model allocates."""


def probed(data, save, criterion, updates, *options, marks, traced=False):
    """A training by fairseq-train in a process of its own, and what it held after some of its updates.

    The marks are at the same place in their epochs: fairseq's iterator holds the batches that are left of one.
    """
    save.mkdir()
    small = [*SMALL_LM, "--max-update", updates, "--save-interval-updates", 0, "--log-interval", 100]
    run_command(
        "python", "-c", PROBE, save / "probe.json", json.dumps(marks), json.dumps(traced), data, "--user-dir",
        "agg_fairseq", *small, *CRITERIONS[criterion], "--save-dir", save, "--save-interval", 10**6, *options,
        env={"OMP_NUM_THREADS": "1"}, timeout=3600,
    )  # fmt: skip
    found = json.loads((save / "probe.json").read_text())
    return [found[str(mark)] for mark in marks]


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
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_a_thousand_updates(lm_data, tmp_path):
    """Over more than sixty epochs and validations, K one epoch."""
    early, late = probed(lm_data, tmp_path / "run", "agg", 1000, marks=[100, 1000])
    assert late["resident"] - early["resident"] < GROWTH
    assert late["tensors"] == early["tensors"]
    _, iterator = trainer_for(lm_data, "--criterion", "cross_entropy", "--required-batch-size-multiple", 8)
    assert_exact(lm_data, tmp_path / "run", 1000, len(iterator))


@pytest.mark.slow
def test_a_window_of_several_epochs(lm_data, tmp_path):
    """Two micro-batches an update; by a trace, which itself takes memory, this package allocates nothing that stays."""
    options = ("--agg-window", 60, "--update-freq", 2)
    early, late = probed(lm_data, tmp_path / "run", "agg", 180, *options, marks=[84, 180], traced=True)
    assert late["tensors"] == early["tensors"]
    assert late["ours"] - early["ours"] < 10_000
    assert_exact(lm_data, tmp_path / "run", 180, 60, frequency=2)


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["face", "agps"])
def test_memory_of_the_others(lm_data, tmp_path, criterion):
    early, late = probed(lm_data, tmp_path / "run", criterion, 150, marks=[75, 150], traced=True)
    assert late["tensors"] == early["tensors"]
    assert late["ours"] - early["ours"] < 10_000


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
@pytest.mark.parametrize("name", ["agg", "face", "agps"])
def test_the_work_of_a_training_step_is_flat(lm_data, name):
    """The same batch from update 25 to update 45, with a window long full: the same elements touched."""
    options = ("--agg-window", 20) if name == "agg" else ()
    trainer, _ = trainer_for(lm_data, *CRITERIONS[name], *options)
    batch = batches(trainer.cfg, trainer.task)[0]
    touched = [elements_touched(lambda: trainer.train_step([batch])) for _ in range(46)]
    assert len(set(touched[25:])) == 1
