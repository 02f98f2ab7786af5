"""scripts/train.sh: what it starts, and what it says before."""

import json
import re
import shlex
import shutil

import pytest
import torch
from hydra import compose, initialize

from agg_fairseq.evaluation.fairseq_logs import read_log
from scripts.command import run
from scripts.training import train
from tests.conftest import ROOT, run_command

CONFIG = """
common: {cpu: true, seed: 3, log_format: json, log_interval: 1, log_file: "${checkpoint.save_dir}/train.log"}
task: {_name: language_modeling, data: '???', tokens_per_sample: 16}
dataset: {max_tokens: 160, num_workers: 0}
model: {_name: transformer_lm, decoder_layers: 1, decoder_embed_dim: 16, decoder_ffn_embed_dim: 16}
criterion: {_name: agg, agg_rare_fraction: 0.3}
optimizer: {_name: adam}
lr_scheduler: {_name: fixed}
optimization: {max_update: 6, lr: [0.01], update_freq: [2]}
checkpoint: {save_dir: '???', no_epoch_checkpoints: true}
hydra: {run: {dir: "${checkpoint.save_dir}/hydra"}, job: {chdir: false}}
"""


@pytest.mark.slow
def test_a_training_is_interrupted_and_resumed(tmp_path, lm_data):
    """A finished one is left alone, and other settings are refused. Relative paths of where the user is, with files
    that are named like ours; the tokens that are told are trained, in batches of ten sequences: no multiple of 8, to
    which fairseq would cut them."""
    folder = tmp_path / "the user’s folder"
    (folder / "scripts").mkdir(parents=True)
    for name in ("scripts/__init__.py", "regex.py", "hydra.py"):
        (folder / name).write_text("raise SystemExit('the user’s own file was run')")
    (folder / "own.yaml").write_text(CONFIG)
    shutil.copytree(lm_data, folder / "data")
    command = ("bash", ROOT / "scripts" / "train.sh", "own", "task.data=data", "checkpoint.save_dir=läufe/one two")
    first = run_command(*command, "optimization.max_update=3", cwd=folder)
    assert "train: 320 tokens per update = 1 x 160 x 2 " in first.stderr and "warning" not in first.stderr
    run = folder / "läufe" / "one two"
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name != ".lock"}
    again = run_command(*command, "optimization.max_update=3", cwd=folder)
    assert "is trained already" in again.stderr and all(
        path.stat().st_mtime_ns == time for path, time in before.items()
    )
    for other in ("criterion.agg_rare_fraction=0.4", "optimization.max_update=6"):
        refused = run_command(*command, "optimization.max_update=3", other, cwd=folder, check=False)
        assert refused.returncode == 2 and "holds a training of other settings (" in refused.stderr
    (run / "done").unlink()  # as a training that was interrupted leaves it
    settings = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(settings | {"optimization.max_update": 6}))
    run_command(*command, cwd=folder)
    lines = read_log(folder / "läufe" / "one two" / "train.log")
    assert [line["num_updates"] for line in lines] == [1, 2, 3, 4, 5, 6] and max(line["wpb"] for line in lines) == 320
    assert {path.name for path in folder.iterdir()} == {"data", "hydra.py", "own.yaml", "regex.py", "scripts", "läufe"}


@pytest.fixture
def launch(monkeypatch, capsys, tmp_path, lm_data):
    """The program in this process, with a number of GPUs: its status, its command as a list, what it said."""

    def launched(config, *arguments, gpus=1, data=f"task.data={lm_data}", save="checkpoint.save_dir=s", dry=True):
        given = [argument for argument in (data, save) if argument]
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        status = run("train", lambda: train.main([config, *given, *arguments, *["--dry-run"] * dry]))
        out, err = capsys.readouterr()
        return status, shlex.split(out), err

    return launched


NAMES = (
    "one,two", "choice(1,2)", "1..2", "a b'c", " -o=ü☃ ", 'a"b\\c\\', "{a,b}?[*]", "$(touch marker)`touch marker`",
)  # fmt: skip
UNFIT = ("new\nline", "a:b", "${a}")
AGG, F2 = "configs/wikitext103/agg", ("configs/wikitext103/mle", "size=f2")


@pytest.mark.parametrize(
    ("config", "gpus", "tokens", "batches"),
    [
        ((AGG,), 1, 32768, (4096, 8)),
        ((f"{AGG}.yaml",), 16, 32768, (2048, 1)),
        (F2, 8, 8192, (1024, 1)),
        (("configs/wmt14_en_de/mle", "size=vaswani-base"), 8, 25000, (3125, 1)),
    ],
)
def test_an_update_keeps_its_tokens(launch, config, gpus, tokens, batches):
    status, command, said = launch(*config, gpus=gpus)
    assert status == 0 and "warning" not in said
    assert f"train: {tokens:,} tokens per update = {gpus} x {batches[0]:,} x {batches[1]} " in said
    assert f"++dataset.max_tokens={batches[0]}" in command and f"++optimization.update_freq=[{batches[1]}]" in command
    assert f"distributed_training.distributed_world_size={gpus}" in command
    alone = any("distributed_init_method='tcp://localhost:" in word for word in command)
    assert command[0].endswith("fairseq-hydra-train") and alone == (gpus > 1)
    assert ("checkpoint.load_checkpoint_on_all_dp_ranks=true" in command) == (gpus > 1)


def test_tokens_that_cannot_be_kept_and_those_that_the_user_sets(launch):
    _, _, said = launch(*F2, gpus=16)
    assert "16,384 tokens per update = 16 x 1,024 x 1 " in said
    assert "warning: that is 2 times the configured 8,192 tokens" in said
    _, command, said = launch(AGG, "dataset.max_tokens=1024", gpus=4)
    assert "++optimization.update_freq=[8]" in command and command.count("++dataset.max_tokens=1024") == 2
    assert "32,768 tokens per update = 4 x 1,024 x 8" in said and "warning" not in said
    _, _, said = launch(AGG, "optimization.update_freq=[1]", "size=agg-small", gpus=2)
    assert "warning: that is 0.25 times the configured 32,768" in said


def test_the_number_of_gpus_is_given_or_counted(launch):
    """Those that are visible; a dry run needs none."""
    assert "= 4 x " in launch(AGG, gpus=4)[2] and "= 2 x " in launch(AGG, "--gpus", "2", gpus=4)[2]
    assert "= 1 x " in launch(AGG, gpus=0)[2] and "= 8 x " in launch(AGG, "--gpus", "8", gpus=0)[2]
    assert "found 0 GPUs; expected one or more at this size; size=tiny" in launch(AGG, gpus=0, dry=False)[2]
    assert "found 2 GPUs; expected 3 or more" in launch(AGG, "--gpus", "3", gpus=2, dry=False)[2]


def test_folders_of_any_name(launch, tmp_path):
    """Hydra takes each as it is; or it is refused in one line, since fairseq or hydra would read it otherwise."""
    for name in (*NAMES, *UNFIT):
        for folder in (name, f"runs/{name}"):
            (tmp_path / folder).mkdir(parents=True)
        arguments = {"data": f"task.data={name}", "save": f"checkpoint.save_dir=runs/{name}"}
        status, command, said = launch(AGG, "~model.dropout", **arguments)
        if status:
            assert name in UNFIT and not command and said.count("\n") == 1, said
            continue
        assert "~model.dropout" in command
        with initialize(version_base="1.1", config_path=None):
            config = compose(overrides=[one for one in command if one.startswith(("++task", "++checkpoint"))])
        assert (config.task.data, config.checkpoint.save_dir) == (name, f"runs/{name}")
    assert not (tmp_path / "marker").exists()


MISTAKES = [
    ("nothing", (), "found no configuration nothing; expected one such as configs/"),
    (AGG, ("size=huge",), "Could not find 'size/huge' Available options in 'size': agg"),
    (AGG, ("size",), "found the argument 'size'; expected KEY=VALUE"),
    (AGG, ("common.nothing=1",), "Key 'nothing' not in 'CommonConfig'"),
    (AGG, ("criterion.nothing=1",), "Key 'nothing' not in 'AggCriterionConfig'"),
    ("configs/wmt14_en_de/agg", ("model.nothing=1",), "model.nothing: found no such option of transformer"),
    (AGG, ("criterion._name=nothing",), "criterion._name: found nothing; expected one of"),
    (AGG, ("criterion.agg_gates=g3",), "Invalid value 'g3', expected one of [both, g1, g2"),
    (AGG, ("optimization.max_update=many",), "'many' of type 'str' could not be converted to Integer"),
    (AGG, ("task.data=nowhere",), "task.data: found no folder nowhere; expected"),
    ("configs/wikitext103/face", (), "found no checkpoint.finetune_from_model; expected checkpoint.finetune_from_mo"),
    ("configs/wikitext103/face", ("checkpoint.finetune_from_model=x.pt",), "found no file x.pt; expected a checkpoint"),
    (AGG, ("optimization.update_freq=[4,2]",), "expected a number of tokens, and one of batches"),
    (AGG, ("optimization.update_freq=-1${eval:1}",), "Unsupported interpolation type eval"),
    (AGG, ("--gpus", "x"), "--gpus: found 'x'; expected a whole number from 1"),
]
BAD = (
    "common: {cpu: true", "", "[1, 2]\n", CONFIG + f"x: {'[' * 2000}{']' * 2000}", CONFIG + "\udcff",
    CONFIG.replace("no_epoch_checkpoints: true", "finetune_from_model: [-1]"),
    CONFIG.replace("{max_tokens: 160, num_workers: 0}", "many"), re.sub("model: .*", "model: 1e999", CONFIG),
)  # fmt: skip
"""Configurations that are no YAML, no mapping, not UTF-8, or have a value of the wrong type."""


def test_configurations_and_options_that_are_refused(launch, tmp_path):
    for config, arguments, message in (*MISTAKES, *((text, (), "") for text in BAD)):
        if config in BAD:
            (tmp_path / "own.yaml").write_bytes(config.encode("utf-8", "surrogateescape"))
            config = "own"
        status, command, said = launch(config, *arguments)
        assert status == 2 and not command and message in said, said
        assert said.count("\n") == 1 and said.startswith("train: error: "), said
    _, _, said = launch(AGG, data=None, save=None)
    assert "found no checkpoint.save_dir, task.data; expected" in said
