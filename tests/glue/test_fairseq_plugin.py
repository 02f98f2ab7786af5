"""What the package replaces inside fairseq, and when; and what the hooks on the task tell a
criterion."""

import json
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from fairseq import options, tasks
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import data_utils, indexed_dataset
from fairseq.dataclass import utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.trainer import Trainer
from fairseq.utils import import_user_module

import agg_fairseq
from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.data.binarized import (
    count_split,
    excluded_tokens,
    load_dictionary,
    training_counts,
)
from agg_fairseq.data.vocabulary import BinarizedVocabulary
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import text_metrics
from agg_fairseq.evaluation.inputs import load_vocabulary
from agg_fairseq.fairseq_plugin.models import build_model
from agg_fairseq.metrics import frequency_mass_groups
from agg_fairseq.plots import frequencies
from tests.commands import LANGUAGE_MODEL, TRANSLATION, save_checkpoint, write_texts
from tests.conftest import ROOT, USER_DIR, run_command
from tests.small_trainings import (
    COMMON,
    LM,
    MT,
    batches,
    build,
    build_trainer,
    configuration,
    count_targets,
    hydra_compose,
)
from tests.unit.test_pages import PAGES, README

PROGRAM = """
import inspect, json, sys
import fairseq.distributed, fairseq.tasks, fairseq.trainer, fairseq_cli.eval_lm, fairseq_cli.generate, fairseq_cli.train

def snapshot():
    # What modules and classes of fairseq and torch's serialization have, and can be called.
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("fairseq", "fairseq_cli") or name == "torch.serialization":
            for owner in (module, *vars(module).values()):
                is_theirs = inspect.isclass(owner) and owner.__module__.startswith("fairseq")
                if is_theirs or owner is module:
                    for key, one in vars(owner).items():
                        if callable(one):
                            found[owner, key] = one
    return found

def replaced():
    after, names = snapshot(), set()
    for (owner, name), value in before.items():
        if after.get((owner, name)) is not value:
            names.add(f"{owner.__name__.rpartition('.')[2]}.{name}")
    return sorted(names)

trainers, init = [], fairseq.trainer.Trainer.__init__
fairseq.trainer.Trainer.__init__ = lambda trainer, *others: trainers.append(trainer) or init(trainer, *others)
before = snapshot()
import agg_fairseq
imported = replaced()
fairseq_cli.train.cli_main()
own = []
for part in (trainers[0].task, trainers[0].optimizer):
    own.append([name for name, one in vars(part).items() if inspect.isfunction(one)])
print("FOUND" + json.dumps([imported, replaced(), *own]))
"""


IMPORTED_FIRST = """
import sys, types
import agg_fairseq
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.utils import import_user_module
print("agg" in CRITERION_REGISTRY)
import_user_module(types.SimpleNamespace(user_dir=sys.argv[1]))
print("agg" in CRITERION_REGISTRY)
"""


@pytest.mark.slow
def test_registration_where_fairseq_is_imported_later():
    assert run_command("python", "-c", IMPORTED_FIRST, USER_DIR).stdout == "False\nTrue\n"


@pytest.mark.slow
def test_what_is_replaced_is_what_the_table_says(lm_data, tmp_path):
    options = "--user-dir agg_fairseq --optimizer sgd --lr 0.1 --cpu --num-workers 0 --max-update 2 --criterion agg"
    arguments = (lm_data, *LM, *options.split(), "--save-dir", tmp_path)
    output = run_command("python", "-c", PROGRAM, *arguments).stdout
    imported, trained, task, optimizer = json.loads(output.partition("FOUND")[2])
    assert imported == ["Trainer._build_optimizer"]
    assert trained == ["Trainer._build_optimizer", "checkpoint_utils.PathManager"]
    hooks = {"train_step", "optimizer_step", "get_batch_iterator"}
    assert set(task) == hooks | {"get_checkpoint_dict", "set_checkpoint_dict"} and optimizer == []


@pytest.mark.parametrize("name", ["agg", "face"])
def test_what_is_counted_goes_when_the_gradient_goes(lm_data, name):
    """A worker that runs out of memory drops its gradient, and goes on with the next
    micro-batch."""
    trainer = build_trainer(lm_data, "--criterion", name)
    first, second, third, *_ = batches(trainer)
    trainer.train_step([first])
    counter, task = trainer.criterion.gating.counter, trainer.task
    settled = counter.current.clone()

    def train(*micro_batches):
        trainer.zero_grad()
        for batch in micro_batches:
            task.train_step(batch, trainer.model, trainer.criterion, trainer.optimizer, 1)
        return counter.current.clone()

    kept = train(second)
    assert train(second, third).sum() > kept.sum(), "one slot for both micro-batches of an update"
    assert train(second).equal(kept) and counter.appearances.equal(settled)
    trainer.zero_grad()  # now in the last micro-batch
    task.optimizer_step(trainer.optimizer, model=trainer.model, update_num=1)
    assert not counter.current.any() and counter.appearances.equal(settled)


def test_the_state_of_another_criterion_is_left_out(lm_data, caplog):
    caplog.set_level("INFO")
    trained, resumed = {}, {}
    for name, more in (("agg", "--agg-window 9"), ("face", "")):
        trainer = build_trainer(lm_data, "--criterion", name, more)
        for batch in batches(trainer)[:2]:
            trainer.train_step([batch])
        trained[name] = trainer.criterion
        resumed[name] = build(lm_data, "--criterion", name, more).criterion
    for name, other in (("agg", "face"), ("face", "agg")):
        caplog.clear()
        for one in (name, other):
            resumed[name].load_checkpoint_state(trained[one].checkpoint_state())
        trained[name].start_update(2)
        resumed[name].start_update(0)  # as with --reset-optimizer
        assert f"{name}: restored the counts" in caplog.text and "start empty" not in caplog.text
        assert f"{name}: left out the state of the checkpoint" in caplog.text
        counts = trained[name].gating.counter.appearances
        assert resumed[name].gating.counter.appearances.equal(counts) and counts.any()


def test_a_criterion_that_does_not_train_is_not_told(lm_data):
    """Several may be built on one task; the steps of the optimizer are those of the one that
    trains."""
    trainer = build_trainer(lm_data)
    other, told = trainer.task.build_criterion(trainer.cfg.criterion), []
    for name, criterion in (("trains", trainer.criterion), ("other", other)):
        criterion.start_update = lambda update, name=name: told.append((name, update))
        criterion.gating.sum_counts = lambda name=name: told.append((name, "step"))
        criterion.on_weights_changed = lambda *_, name=name: told.append((name, "changed"))
    trainer.train_step(batches(trainer)[:1])
    assert told == [("trains", 0), ("trains", "step"), ("trains", "changed")]


def test_a_checkpoint_of_fairseq_0_9_of_another_criterion(lm_data, tmp_path):
    """Options in a Namespace, without those that fairseq has had since, as AGG's authors released
    them."""
    model = build(lm_data).model
    args = options.parse_args_and_arch(options.get_training_parser(), [str(lm_data), *LM, *COMMON])
    vars(args).update(criterion="cross_entropy_agg", optimizer="their_own")
    del args.use_plasma_view, args.tpu
    state = {"args": args, "model": model.state_dict(), "extra_state": {"epoch": 1}}
    state["optimizer_history"] = [{"lr_scheduler_state": {}, "num_updates": 5}]
    torch.save(state, tmp_path / "checkpoint_best.pt")
    found, task = build_model(Checkpoint(tmp_path), lm_data)
    task.load_dataset("test")
    tokens = torch.arange(12).view(2, 6)
    assert torch.equal(found(tokens)[0], model.eval()(tokens)[0])


def test_whatever_reads_counts_reads_all_parts_and_folders(lm_data, tmp_path):
    """The tokens beyond the head of a dictionary count as the unknown word."""
    data = shutil.copytree(lm_data, tmp_path / "bin")
    for suffix in ("bin", "idx"):  # fairseq reads it as more of train
        shutil.copy(data / f"valid.{suffix}", data / f"train1.{suffix}")
    both, dictionary = f"{data}:{lm_data}", load_dictionary(lm_data)
    part = count_split(data, dictionary, combine=False)
    whole = 2 * part + count_split(data, dictionary, "valid")
    assert BinarizedVocabulary.load(both).counts.equal(whole)
    curve = frequencies({"both": both}).axes[0].lines[0].get_ydata()
    assert list(curve) == sorted(whole[whole > 0].tolist(), reverse=True)
    texts = write_texts(tmp_path / "t.jsonl", ["w0 w1"], ["w0 w1"])
    groups = frequency_mass_groups(whole, excluded=excluded_tokens(dictionary)).sizes()
    assert text_metrics({"t": texts}, both).facts["groups"] == groups
    task = build(both, "--output-dictionary-size 30").task
    for epoch, expected in ((None, whole), (2, part), (4, part)):
        head = expected[:30].clone()
        head[dictionary.unk()] += expected[30:].sum()
        assert training_counts(task, "train", epoch=epoch).equal(head)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("lm", "--sample-break-mode eos --tokens-per-sample 8"),
        ("lm", "--sample-break-mode eos --max-tokens 9"),
        ("lm", "--sample-break-mode complete --tokens-per-sample 8"),
        ("lm", "--shorten-method truncate --tokens-per-sample 8"),
        ("lm", "--add-bos-token"),
        ("mt", "--max-source-positions 8"),
        ("mt", "--max-target-positions 9 --truncate-source"),
        ("mt", "--upsample-primary 3"),
    ],
)
def test_counts_are_of_what_is_trained_on(kind, options, lm_data, mt_data, tmp_path, caplog):
    """Those of the batches of an epoch, in two parts, for gates, output layers and measures. The log
    has the difference; models of other counts are refused."""
    caplog.set_level("INFO")
    data = shutil.copytree(lm_data if kind == "lm" else mt_data, tmp_path / "bin")
    for path in data.glob("valid.*"):
        shutil.copy(path, data / path.name.replace("valid", "train1"))
    lm, mt = (*LM, "--arch transformer_lm_unigram"), (*MT, "--upsample-primary 1")
    base = lm if kind == "lm" else mt
    cfg = configuration(data, "--criterion agps --agps-rare-rank 20", options, base=base)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    epoch = trainer.get_train_iterator(1).next_epoch_itr(shuffle=False)
    expected = count_targets(epoch, task.target_dictionary)
    assert trainer.criterion.gating.counts.equal(expected)
    trainer.consolidate_optimizer()  # builds it
    if kind == "lm":
        assert model.decoder.output_projection.counts.equal(expected)
    trainer.save_checkpoint(str(tmp_path / "c.pt"), {"train_iterator": {"epoch": 1}})
    models = {"model": Checkpoint(tmp_path / "c.pt")}
    assert load_vocabulary(models, f"{data}:{data}").counts.equal(2 * expected)
    whole = BinarizedVocabulary.load(data, models["model"].languages).counts
    skips = f" of {whole.sum():,}, since training skips or cuts the others,"
    skips = skips if expected.sum() < whole.sum() else ""
    assert f"found {expected.sum():,} target tokens{skips} in train" in caplog.text
    other = LANGUAGE_MODEL if kind == "lm" else {**TRANSLATION, "upsample_primary": 1}
    weight = torch.randn(len(expected), 4)
    models["other"] = Checkpoint(save_checkpoint(tmp_path / "o.pt", weight, other))
    with pytest.raises(UserError, match=f"found {whole.sum():,} training targets in .*; measure"):
        load_vocabulary(models, data)


def test_counts_of_older_formats(lm_data, tmp_path):
    dictionary, path = load_dictionary(lm_data), tmp_path / "cached" / "train.bin"
    path.parent.mkdir()
    builder = indexed_dataset.make_builder(str(path), "cached")
    for sentence in data_utils.load_indexed_dataset(str(lm_data / "train"), dictionary):
        builder.add_item(sentence)
    builder.finalize(str(path.with_suffix(".idx")))
    shutil.copy(lm_data.parent / "train", tmp_path)  # "raw"
    for folder in (tmp_path, path.parent):
        assert count_split(folder, dictionary).equal(count_split(lm_data, dictionary))
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UserError, match="bytes, where the .idx says"):
        count_split(path.parent, dictionary)


def test_small_trainings_have_the_configuration_that_hydra_composes(tmp_path, monkeypatch):
    given = (tmp_path / "it's", "--criterion agg --adam-betas", "(0.9, 0.98)")
    found = configuration(*given, base=MT)
    monkeypatch.setattr(utils, "compose", hydra_compose)
    assert found == configuration(*given, base=MT)


def test_the_pages_name_every_criterion():
    agg_fairseq.register()
    import_user_module(SimpleNamespace(user_dir=str(ROOT / "examples" / "awd_lstm")))
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for option, registry in (
        ("criterion", CRITERION_REGISTRY),
        ("arch", ARCH_MODEL_REGISTRY),
        ("optimizer", OPTIMIZER_REGISTRY),
    ):
        named = set(re.findall(rf"--{option} (\w+)", text))
        assert len(named) > 3 and named <= set(registry), option
    ours = {name for name, one in CRITERION_REGISTRY.items() if one.__module__.startswith("agg_f")}
    named = re.findall(r"(?:`|--criterion )(\w+)", README.read_text(encoding="utf-8"))
    assert "agg" in ours and ours <= set(named)
