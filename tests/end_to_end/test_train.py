"""scripts/train.sh: what it starts, and what it says before."""

import json
import shlex
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from agg_fairseq.data.fairseq_logs import read_log
from agg_fairseq.errors import UserError
from scripts import train
from scripts.command import run
from scripts.train import composed, full_config

CONFIG = """
common: {cpu: true, seed: 3, log_format: json, log_interval: 1, log_file: "${checkpoint.save_dir}/train.log"}
task: {_name: language_modeling, data: '???', tokens_per_sample: 16}
dataset: {max_tokens: 160, num_workers: 0, required_batch_size_multiple: 1}
model: {_name: transformer_lm, decoder_layers: 1, decoder_embed_dim: 16, decoder_ffn_embed_dim: 16}
criterion: {_name: agg, agg_rare_fraction: 0.3}
optimizer: {_name: adam}
lr_scheduler: {_name: fixed}
optimization: {max_update: 6, lr: [0.01], update_freq: [2]}
checkpoint: {save_dir: '???', no_epoch_checkpoints: true}
hydra: {run: {dir: "${checkpoint.save_dir}/hydra"}, job: {chdir: false}}
"""


@pytest.mark.slow
def test_a_training_is_interrupted_and_resumed(clone, tmp_path, lm_data):
    """Paths are relative to where the user is. The tokens that are told are trained, in batches of
    ten sequences: no multiple of 8, to which fairseq would cut them."""
    folder = tmp_path / "the user’s folder"
    shutil.copytree(lm_data, folder / "data")
    (folder / "own.yaml").write_text(CONFIG)
    run = folder / "runs" / "one two"

    def trained(updates):
        given = ("own", "task.data=data", "checkpoint.save_dir=runs/one two")
        return clone.run("train.sh", *given, f"optimization.max_update={updates}", cwd=folder)

    assert "train: 320 tokens per update = 1 x 160 x 2 " in trained(3).stderr
    (run / "done").unlink()  # as a training that was interrupted leaves it
    settings = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(settings | {"optimization.max_update": 6}))
    trained(6)
    (lines,) = read_log(run / "train.log", "train_inner")
    assert [line["num_updates"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert max(line["wpb"] for line in lines) == 320
    assert {path.name for path in folder.iterdir()} == {"data", "own.yaml", "runs"}


@pytest.mark.slow
def test_two_machines_train_as_one(clone, tmp_path, lm_data):
    """Processes of one each, which meet at a port: the same losses, and twice the batches."""
    (tmp_path / "own.yaml").write_text(CONFIG)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(probe.getsockname()[1])}

    def trained(folder, variables):
        given = ("own", f"task.data={lm_data}", f"checkpoint.save_dir={folder}", "model.dropout=0")
        return clone.run("train.sh", *given, cwd=tmp_path, **variables).stderr

    with ThreadPoolExecutor() as pool:
        environments = [{"WORLD_SIZE": "2", "RANK": str(rank), **meeting} for rank in range(2)]
        said = [*pool.map(trained, ["two"] * 2, environments)]
    trained("one", {})
    assert all("train: 320 tokens per update = 2 x 160 x 1 " in each for each in said)
    one, two = (read_log(tmp_path / run / "train.log", "train_inner")[0] for run in ("one", "two"))
    for name in ("loss", "wpb", "num_updates", "rare_tokens"):
        assert [each.get(name) for each in one] == [each.get(name) for each in two]
    assert len(one) == 6 and (tmp_path / "two" / "done").is_file()


@pytest.fixture
def launch(monkeypatch, capsys, tmp_path):
    """The program in this process, with a number of GPUs: its status, its command as a list, what
    it said."""

    def launched(config, *arguments, gpus=1, is_dry=True):
        given = ("task.data=d", "checkpoint.save_dir=s", *["--dry-run"] * is_dry)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        status = run("train", lambda: train.main([config, *given, *arguments]))
        out, err = capsys.readouterr()
        return status, shlex.split(out), err

    return launched


AGG = "configs/wikitext103/agg"
MACHINES = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "first", "MASTER_PORT": "29500"}
LOCAL = "init_method='tcp://localhost: on_all_dp_ranks=true"
STARTED = {
    # arguments, GPUs that are visible, environment;
    # what is said of an update, and options that are started with
    "one GPU": (
        AGG, 1, {},
        "32,768 tokens per update = 1 x 4,096 x 8", "max_tokens=4096 update_freq=[8] world_size=1",
    ),
    "eight GPUs": (
        f"{AGG} dataset.max_tokens=2048 optimization.update_freq=[16]", 8, {},
        "32,768 tokens per update = 8 x 2,048 x 2",
        f"max_tokens=2048 update_freq=[2] world_size=8 {LOCAL}",
    ),
    "translation": (
        "configs/wmt14_en_de/mle size=vaswani-base", 8, {},
        "25,000 tokens per update = 8 x 3,125 x 1",
        f"max_tokens=3125 update_freq=[1] world_size=8 {LOCAL}",
    ),
    "two machines of four": (
        f"{AGG} --gpus 4", 8, MACHINES,
        "32,768 tokens per update = 8 x 4,096 x 1",
        "DEVICES=0,1,2,3 world_size=8 distributed_rank=4 init_method='tcp://first:29500' "
        "on_all_dp_ranks=true",
    ),
    "side by side": (f"{AGG} --gpus 2 --place 2/3", 8, {}, " = 2 x ", f"DEVICES=4,5 {LOCAL}"),
    "eight on one GPU": (f"{AGG} --place 7/8", 1, {}, " = 1 x ", "DEVICES=0"),
    "the second of two": (
        f"{AGG} --place 1/2", 2, {"CUDA_VISIBLE_DEVICES": "3,6"}, " = 1 x ", "DEVICES=6",
    ),
    "a dry run without a GPU": (f"{AGG} --gpus 8", 0, {}, " = 8 x ", LOCAL),
    "tiny": (f"{AGG} size=tiny", 2, {}, "2,048 tokens", ""),
    "tiny, on a GPU": (f"{AGG} size=tiny --gpus 1", 2, {}, "2,048 tokens", "common.cpu=false"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "gpus", "environment", "words", "started"), STARTED.values(), ids=STARTED
)
def test_what_is_started(launch, arguments, gpus, environment, words, started, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    status, command, said = launch(*arguments.split(), gpus=gpus)
    line = " ".join(command)
    assert status == 0 and words in said and "/fairseq-hydra-train " in line
    for option in started.split():
        assert line.count(option) == line.count(option.partition("=")[0]) == 1
    for option in ("init_method=", "on_all_dp_ranks=", "common.cpu=", "DEVICES="):
        assert (option in line) == (option in started)


def test_an_incomplete_environment_of_a_machine(launch, monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR"):
        monkeypatch.setenv(name, MACHINES[name])
    status, _, said = launch(AGG, gpus=8)
    assert status == 2 and "MASTER_PORT= LOCAL_WORLD_SIZE=1" in said


def test_bf16_takes_the_place_of_fp16(launch):
    given = ["common.bf16=true", "task.data=d", "checkpoint.save_dir=s"]
    common = full_config(composed(AGG, given)[2]).common
    assert (common.bf16, common.fp16, common.tpu) == (True, False, False)
    assert "++common.fp16=false" in launch(AGG, "common.bf16=true")[1]


def test_a_plan_is_checked_before_anything_is_trained(monkeypatch, capsys):
    """Criterions are built, and checkpoints to average are expected."""
    given = "task.data=d checkpoint.save_dir=s optimization.max_update=10"
    plan = [f"bash /x/train.sh configs/wmt14_en_de/mle size=tiny {given}"]
    monkeypatch.setattr("sys.stdin", plan)
    train.main(["--check", "--dry-run"])
    plan.append("agg-fairseq average-checkpoints s --last 5 --by update")
    with pytest.raises(UserError, match="found checkpoint.save_interval_updates=23 for 10 updates"):
        train.main(["--check", "--dry-run"])
    monkeypatch.setattr("sys.stdin", [f"{plan[0]} criterion.label_smoothing=7"])
    with pytest.raises(SystemExit, match="2"):
        train.main(["--check", "--dry-run"])
    assert "label_smoothing" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "gpus", "message"),
    [
        (AGG, 3, "3 GPUs, on which an update would have 36,864 tokens"),
        ("configs/wmt14_en_de/agps", 16, "a batch would have 4,096 tokens"),
        (AGG, 0, "found 0 GPUs; expected one or more at this size; size=tiny"),
        (f"{AGG} --gpus 3", 2, "found 2 GPUs; expected 3 or more"),
        ("nothing", 1, "found no configuration nothing"),
        (f"{AGG} size=huge", 1, "Could not find 'size/huge' Available options in 'size': agg"),
        (f"{AGG} size", 1, "found the argument 'size'"),
        ("configs/wmt14_en_de/agg model.nothing=1", 1, "model.nothing: found no such option of tr"),
        (f"{AGG} task.data=???", 1, "found no task.data"),
        (f"{AGG} optimization.update_freq=[4,2]", 1, "expected a number of tokens, and one of"),
    ],
)
def test_refusals(launch, arguments, gpus, message):
    status, command, said = launch(*arguments.split(), gpus=gpus, is_dry="GPUs;" not in message)
    assert status == 2 and not command and message in said, said
    assert said.count("\n") == 1 and said.startswith("train: error: ")
