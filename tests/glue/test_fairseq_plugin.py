"""What the package replaces inside fairseq, and when; and what the hooks on the task tell a
criterion."""

import json
import shutil

import pytest
import torch
from fairseq import options, tasks
from fairseq.data import data_utils, indexed_dataset

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.data.binarized import count_tokens, load_dictionary, training_counts
from agg_fairseq.evaluation.inputs import load_vocabulary
from agg_fairseq.fairseq_plugin.models import build_model
from tests.commands import TRANSLATION, save_checkpoint
from tests.conftest import USER_DIR, run_command
from tests.small_trainings import COMMON, LM, MT, batches, build, configuration, trainer_for

PROGRAM = """
import inspect, json, sys
import fairseq.distributed, fairseq.tasks, fairseq.trainer, fairseq_cli.eval_lm, fairseq_cli.generate, fairseq_cli.train

def snapshot():
    # Every function and class that a module of fairseq, or torch's serialization, holds under a name; the methods too.
    # Without the names of modules: several have a class under its name.
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in ("fairseq", "fairseq_cli") and name != "torch.serialization":
            continue
        name = name.rpartition(".")[2]
        for key, value in vars(module).items():
            if callable(value):
                found[name, key, module] = value
            if inspect.isclass(value) and value.__module__.startswith(("fairseq.", "fairseq_cli.")):
                found |= {(key, part, module): one for part, one in vars(value).items() if callable(one)}
    return found

def replaced():
    after = snapshot()
    return sorted({f"{owner}.{name}" for (owner, name, module), value in before.items()
                   if after.get((owner, name, module)) is not value})

trainers, init = [], fairseq.trainer.Trainer.__init__
fairseq.trainer.Trainer.__init__ = lambda trainer, *others: trainers.append(trainer) or init(trainer, *others)
before = snapshot()
import agg_fairseq
imported = replaced()
fairseq_cli.train.cli_main()
parts = trainers[0].task, trainers[0].optimizer
own = [[name for name, one in vars(part).items() if inspect.isfunction(one)] for part in parts]
print("FOUND" + json.dumps([imported, replaced(), *own]))
"""


IMPORTED_FIRST = """
import sys, types
import agg_fairseq, agg_fairseq.functional
assert not any(name.partition(".")[0] == "fairseq" for name in sys.modules)
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.utils import import_user_module
assert "agg" not in CRITERION_REGISTRY
import_user_module(types.SimpleNamespace(user_dir=sys.argv[1]))
assert "agg" in CRITERION_REGISTRY and "coupled_adam" in OPTIMIZER_REGISTRY and "transformer_f2" in ARCH_MODEL_REGISTRY
agg_fairseq.register()
"""


@pytest.mark.slow
def test_registration_in_a_program_that_imports_the_package_before_fairseq():
    run_command("python", "-c", IMPORTED_FIRST, USER_DIR)


@pytest.mark.slow
def test_what_is_replaced_is_what_the_table_says_and_no_more(lm_data, tmp_path):
    """All other functions, classes and methods of fairseq are the same objects as before."""
    options = "--user-dir agg_fairseq --optimizer sgd --lr 0.1 --cpu --num-workers 0 --max-update 2 --criterion agg"
    arguments = (lm_data, *LM, *options.split(), "--save-dir", tmp_path)
    output = run_command("python", "-c", PROGRAM, *arguments).stdout
    imported, trained, task, optimizer = json.loads(output.partition("FOUND")[2])
    assert imported == ["Trainer._build_optimizer"]
    rest = {name for name in trained if not name.startswith("PathManager.")}
    assert rest == {"Trainer._build_optimizer", "checkpoint_utils.PathManager"}
    hooks = [
        "get_batch_iterator",
        "get_checkpoint_dict",
        "optimizer_step",
        "set_checkpoint_dict",
        "train_step",
    ]
    assert sorted(task) == hooks and optimizer == []


@pytest.mark.parametrize("name", ["agg", "face"])
def test_what_is_counted_goes_when_the_gradient_goes(lm_data, name):
    """As where a worker runs out of memory: fairseq drops its gradient, and goes on with the next
    micro-batch."""
    trainer, _ = trainer_for(lm_data, "--criterion", name)
    data = batches(trainer.cfg, trainer.task)
    trainer.train_step([data[0]])
    counter, task = trainer.criterion.objective.counter, trainer.task
    settled = counter.current.clone()

    def micro_batch(batch):
        task.train_step(batch, trainer.model, trainer.criterion, trainer.optimizer, 1)

    trainer.zero_grad()
    micro_batch(data[1])
    assert torch.equal(counter.appearances, settled)
    first = counter.current.clone()
    micro_batch(data[2])
    assert counter.current.sum() > first.sum(), "one slot for both micro-batches of an update"
    trainer.zero_grad()
    micro_batch(data[1])
    assert torch.equal(counter.current, first) and torch.equal(counter.appearances, settled)
    trainer.zero_grad()  # now in the last micro-batch
    task.optimizer_step(trainer.optimizer, model=trainer.model, update_num=1)
    assert not counter.current.any() and torch.equal(counter.appearances, settled)


def test_a_state_of_version_0_2_0_goes_on(lm_data, caplog):
    """As `agg` and `face` saved it then. The log says that counts start empty, that they are
    restored, and that the state of another criterion is left out."""
    caplog.set_level("INFO")
    states, counted = {}, {}
    for name in ("agg", "face", "mle"):
        trainer, _ = trainer_for(lm_data, "--criterion", name)
        for batch in batches(trainer.cfg, trainer.task)[:2]:
            trainer.train_step([batch])
        states[name] = trainer.criterion.checkpoint_state()
        trainer.criterion.start_update(2)
        counter = trainer.criterion.objective.counter
        counted[name] = None if counter is None else counter.appearances
    assert caplog.text.count("the counts start empty at update 0") == 2
    agg, face = (states[name]["objective"]["counter._extra_state"] for name in ("agg", "face"))
    face = {"frequency": face["appearances"], "current": face["current"]}
    old = {"agg": {"counter": agg, "static_rare": None}, "face": face, "mle": {}}
    for name, other in (("agg", "face"), ("face", "mle"), ("mle", "agg")):
        for state in (states[name], {**old[name], "open_update": 1}):
            caplog.clear()
            trainer, _ = trainer_for(lm_data, "--criterion", name)
            trainer.criterion.load_checkpoint_state(state)
            trainer.criterion.start_update(2)
            assert ("restored the counts" in caplog.text) == (name != "mle")
            assert "left out" not in caplog.text and "start empty" not in caplog.text
            counter = trainer.criterion.objective.counter
            assert counter is None or counter.appearances.equal(counted[name])
        trainer.criterion.load_checkpoint_state(states[other])
        assert f"{name}: left out the state of the checkpoint" in caplog.text


def test_a_criterion_that_does_not_train_is_not_told(lm_data):
    """Several may be built on one task; the steps of the optimizer are those of the one that
    trains."""
    trainer, _ = trainer_for(lm_data, "--criterion", "mle")
    other = trainer.task.build_criterion(trainer.cfg.criterion)
    told = {"trains": [], "other": []}
    for name, criterion in (("trains", trainer.criterion), ("other", other)):
        criterion.start_update = told[name].append
        criterion.on_optimizer_step = lambda name=name: told[name].append("step")
        criterion.on_weights_changed = lambda optimizer, model, name=name: told[name].append(
            "changed"
        )
    trainer.train_step(batches(trainer.cfg, trainer.task)[:1])
    assert told == {"trains": [0, "step", "changed"], "other": []}


def test_a_checkpoint_of_fairseq_0_9_with_a_criterion_of_another_program(lm_data, tmp_path):
    """As AGG's authors have released them: options in a Namespace, without those that fairseq has
    had since."""
    _, _, model, _ = build(lm_data, "--criterion", "cross_entropy")
    args = options.parse_args_and_arch(options.get_training_parser(), [str(lm_data), *LM, *COMMON])
    vars(args).update(criterion="cross_entropy_agg", optimizer="their_own")
    del args.use_plasma_view, args.tpu
    history = [{"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 5}]
    state = {
        "args": args,
        "model": model.state_dict(),
        "optimizer_history": history,
        "extra_state": {"epoch": 1},
    }
    torch.save(state, tmp_path / "checkpoint_best.pt")
    found, task = build_model(Checkpoint(tmp_path), lm_data)
    task.load_dataset("test")
    assert len(task.dataset("test")) > 0
    tokens = torch.arange(12).view(2, 6)
    assert torch.equal(found(tokens)[0], model.eval()(tokens)[0])


def test_counts_are_those_of_all_parts_of_the_split(lm_data, tmp_path):
    """What fairseq's language models do not predict, but for the head of their dictionary, is the
    unknown word."""
    data = shutil.copytree(lm_data, tmp_path / "bin")
    _, task, *_ = build(data, "--criterion", "mle", "--output-dictionary-size", 30)
    whole = count_tokens(data, task.dictionary)
    head = training_counts(task, "train")
    assert len(head) == 30 and head.sum() == whole.sum()
    assert head[task.dictionary.unk()] == whole[30:].sum() + whole[task.dictionary.unk()]
    _, task, *_ = build(data, "--criterion", "mle")
    counts = training_counts(task, "train")
    assert torch.equal(counts, count_tokens(data, task.dictionary))
    for suffix in ("bin", "idx"):
        # fairseq reads it as more of train
        shutil.copy(data / f"valid.{suffix}", data / f"train1.{suffix}")
    assert torch.equal(
        training_counts(task, "train"), counts + count_tokens(data, task.dictionary, "valid")
    )


@pytest.mark.parametrize("implementation", ["raw", "cached"])
def test_counts_of_every_format(implementation, lm_data, tmp_path):
    """As fairseq reads it: text, or the older binary format."""
    dictionary = load_dictionary(lm_data)
    shutil.copy(lm_data / "dict.txt", tmp_path)
    if implementation == "raw":
        shutil.copy(lm_data.parent / "train", tmp_path)
    else:
        builder = indexed_dataset.make_builder(str(tmp_path / "train.bin"), implementation)
        for sentence in data_utils.load_indexed_dataset(str(lm_data / "train"), dictionary):
            builder.add_item(sentence)
        builder.finalize(str(tmp_path / "train.idx"))
    task = tasks.setup_task(
        configuration(tmp_path, "--criterion", "mle", "--dataset-impl", implementation).task
    )
    assert torch.equal(training_counts(task, "train"), count_tokens(lm_data, dictionary))


def test_the_first_part_counts_as_often_as_it_is_read(mt_data, tmp_path):
    """--upsample-primary, of which a language model has none."""
    data = shutil.copytree(mt_data, tmp_path / "bin")
    for path in data.glob("valid.*"):
        shutil.copy(path, data / path.name.replace("valid", "train1"))
    task = tasks.setup_task(
        configuration(data, "--criterion", "mle", "--upsample-primary", 3, base=MT).task
    )
    task.load_dataset("train", combine=True)
    dataset = task.dataset("train")
    tokens = torch.cat([dataset[index]["target"] for index in range(len(dataset))])
    expected = torch.bincount(tokens, minlength=len(task.target_dictionary))
    assert torch.equal(training_counts(task, "train"), expected)
    options = {**TRANSLATION, "upsample_primary": 3}
    model = save_checkpoint(tmp_path / "c.pt", torch.randn(len(expected), 4), options)
    found = load_vocabulary({"model": Checkpoint(model)}, f"{data}:{data}")  # two shards
    assert torch.equal(found.counts, 2 * expected), "in measures as in training"
    assert (
        expected.sum() > count_tokens(mt_data, task.target_dictionary, "train.en-de.de").sum() * 3
    )
