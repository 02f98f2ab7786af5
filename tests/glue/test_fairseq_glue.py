"""What the package replaces inside fairseq, and when; and what the hooks on the task tell a criterion."""

import json
import shutil

import pytest
import torch

from tests.conftest import run_command
from tests.small_trainings import batches, trainer_for

SNAPSHOT = """
import inspect, json, sys

def snapshot():
    # Every function and class that a module of fairseq, or torch's serialization, holds under a name; the methods too.
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in ("fairseq", "fairseq_cli") and name != "torch.serialization":
            continue
        for key, value in vars(module).items():
            if callable(value):
                found[f"{name}.{key}"] = value
            if inspect.isclass(value) and value.__module__.startswith(("fairseq.", "fairseq_cli.")):
                found |= {f"{name}.{key}.{part}": one for part, one in vars(value).items() if callable(one)}
    return found

def replaced(before):
    after = snapshot()
    return sorted(name for name, value in before.items() if after.get(name) is not value)

import fairseq.distributed, fairseq.tasks, fairseq.trainer, fairseq_cli.eval_lm, fairseq_cli.generate, fairseq_cli.train
before = snapshot()
"""


def test_importing_registers_and_replaces_one_method():
    """All other functions, classes and methods of fairseq are the same objects as before."""
    program = """
import agg_fairseq
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY

watched = [
    "fairseq.checkpoint_utils.load_checkpoint", "fairseq.checkpoint_utils.PathManager", "fairseq_cli.train.main",
    "fairseq.trainer.Trainer.train_step", "fairseq.distributed.fsdp_enable_wrap", "fairseq_cli.train.fsdp_enable_wrap",
    "fairseq.tasks.fairseq_task.FairseqTask.train_step",
]
registered = "agg" in CRITERION_REGISTRY and "transformer_lm_f2" in ARCH_MODEL_REGISTRY
print(json.dumps([registered, all(name in before for name in watched), replaced(before)]))
"""
    registered, complete, found = json.loads(run_command("python", "-c", SNAPSHOT + program).stdout)
    assert registered and complete and methods(found) == {"Trainer._build_optimizer"}


def methods(names):
    """By class and method alone: several modules of fairseq have a class under its name."""
    return {".".join(name.split(".")[-2:]) for name in names}


@pytest.mark.slow
def test_a_training_replaces_what_the_table_says_and_no_more(lm_data, tmp_path):
    """Two names of `checkpoint_utils` and methods of two classes; attributes of the task and of the optimizer."""
    program = """
trainers, init = [], fairseq.trainer.Trainer.__init__

def __init__(trainer, *arguments, **options):
    init(trainer, *arguments, **options)
    trainers.append(trainer)

def own_methods(instance):
    return sorted(name for name in vars(instance) if inspect.isfunction(vars(instance)[name]))

fairseq.trainer.Trainer.__init__ = __init__
before = snapshot()
fairseq_cli.train.cli_main()
task, optimizer = trainers[0].task, trainers[0].optimizer
print("FOUND" + json.dumps([replaced(before), own_methods(task), own_methods(optimizer)]))
"""
    options = (
        "--user-dir agg_fairseq --task language_modeling --arch transformer_lm --decoder-layers 1 "
        "--decoder-embed-dim 16 --decoder-input-dim 16 --decoder-output-dim 16 --decoder-ffn-embed-dim 16 "
        "--decoder-attention-heads 2 --tokens-per-sample 16 --max-tokens 64 --optimizer sgd --lr 0.1 --cpu "
        "--num-workers 0 --max-update 2 --criterion agg"
    ).split()
    output = run_command("python", "-c", SNAPSHOT + program, lm_data, *options, "--save-dir", tmp_path).stdout
    names, task, optimizer = json.loads(output.partition("FOUND")[2])
    whole = [name for name in names if not name.startswith("fairseq.checkpoint_utils.PathManager.")]
    scheduler = {f"ReduceLROnPlateauLRSchedule.{name}" for name in ("state_dict", "load_state_dict")}
    functions = {"checkpoint_utils.PathManager", "checkpoint_utils.load_checkpoint"}
    assert methods(whole) == {"Trainer._build_optimizer", *scheduler, *functions}
    hooks = ["get_batch_iterator", "get_checkpoint_dict", "optimizer_step", "set_checkpoint_dict", "train_step"]
    assert task == hooks and optimizer == ["zero_grad"]


@pytest.mark.parametrize("name", ["agg", "face"])
def test_what_is_counted_goes_when_the_gradient_goes(lm_data, name):
    """As where a worker runs out of memory: fairseq drops its gradient, and goes on with the next micro-batch."""
    trainer, _ = trainer_for(lm_data, "--criterion", name)
    data = batches(trainer.cfg, trainer.task)
    trainer.train_step([data[0]])
    counter, task = getattr(trainer.criterion, "agg", trainer.criterion).counter, trainer.task
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


def test_a_criterion_that_does_not_train_is_not_told(lm_data):
    """Several may be built on one task; the steps of the optimizer are those of the one that trains."""
    trainer, _ = trainer_for(lm_data, "--criterion", "mle")
    other = trainer.task.build_criterion(trainer.cfg.criterion)
    told = {"trains": [], "other": []}
    for name, criterion in (("trains", trainer.criterion), ("other", other)):
        criterion.begin_update = told[name].append
        criterion.on_optimizer_step = lambda name=name: told[name].append("step")
        criterion.on_weights_changed = lambda optimizer, model, name=name: told[name].append("changed")
    trainer.train_step(batches(trainer.cfg, trainer.task)[:1])
    assert told == {"trains": [0, "step", "changed"], "other": []}


def test_states_of_earlier_versions_go_on(lm_data):
    """As 0.1.0 and 0.2.0 saved them: 6 times token 5, and an update under way."""
    current = torch.arange(64)
    counter = {
        "vocabulary": 64, "window": 3, "sizes": torch.tensor([2, 1]), "tokens": torch.tensor([5, 9, 5]).int(),
        "counts": torch.tensor([4, 1, 2]).int(), "current": current,
    }  # fmt: skip
    frequency = torch.zeros(64, dtype=torch.int64).index_fill_(0, torch.tensor([5]), 6)
    for options, state in (
        (("agg", "--agg-window", 3), {"counter": counter, "open_update": 1, "static_rare": None}),
        (("face",), {"frequency": frequency, "current": current, "open_update": 1}),
    ):
        trainer, _ = trainer_for(lm_data, "--criterion", *options)
        trainer.task.set_checkpoint_dict({"agg_fairseq": state})
        found = getattr(trainer.criterion, "agg", trainer.criterion).counter
        assert found.appearances[5] == 6 and found.open_update == 1
        saved = trainer.criterion.checkpoint_state()
        assert saved.keys() == state.keys() and saved["open_update"] == 1
        trainer.criterion.begin_update(2)
        assert found.appearances[5] == 6 + 5 and found.appearances[63] == 63


def test_tokens_beyond_the_dictionary_are_one_line(lm_data, tmp_path, capsys):
    """As with the dictionary of another fairseq-preprocess: fairseq would end in a traceback at the first of them."""
    data = shutil.copytree(lm_data, tmp_path / "data")
    lines = (data / "dict.txt").read_text().splitlines(keepends=True)
    (data / "dict.txt").write_text("".join(lines[:-20]))
    trainer, _ = trainer_for(data, "--criterion", "agg")
    with pytest.raises(SystemExit):
        trainer.train_step(batches(trainer.cfg, trainer.task))
    assert f"but the dictionary has {len(lines) - 16}" in capsys.readouterr().err


def test_the_patience_of_another_training_is_forgotten(lm_data, monkeypatch):
    """With the options by which fairseq forgets the best validation."""
    import fairseq_cli.train
    from fairseq import checkpoint_utils

    trainer, _ = trainer_for(lm_data, "--criterion", "agg", "--no-save")
    should_stop = fairseq_cli.train.should_stop_early
    monkeypatch.setattr(trainer, "load_checkpoint", lambda *args, **options: setattr(should_stop, "best", 1.0))
    try:
        for option in ("reset_optimizer", "reset_meters", None):
            for name in ("reset_optimizer", "reset_meters"):
                trainer.cfg.checkpoint[name] = name == option
            checkpoint_utils.load_checkpoint(trainer.cfg.checkpoint, trainer)
            assert hasattr(should_stop, "best") is (option is None)
    finally:
        vars(should_stop).pop("best", None)
