"""scripts/train.sh: the same training by one process and by several; and what it says before it starts."""

import shlex
import shutil

import pytest
import torch
from hydra import compose, initialize

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.evaluation.training_log import read_log
from scripts.command import run
from scripts.training import train
from tests.conftest import ROOT, run_command

SCRIPT = ROOT / "scripts" / "train.sh"
CONFIG = """
common: {cpu: true, seed: 3, log_format: json, log_interval: 1, log_file: "${checkpoint.save_dir}/train.log"}
task: {_name: language_modeling, data: '???', tokens_per_sample: 16}
dataset: {max_tokens: 32, num_workers: 0}
model:
  _name: transformer_lm
  share_decoder_input_output_embed: true
  dropout: 0
  decoder_layers: 1
  decoder_embed_dim: 16
  decoder_input_dim: 16
  decoder_output_dim: 16
  decoder_ffn_embed_dim: 16
  decoder_attention_heads: 2
criterion: {_name: agg, agg_rare_fraction: 0.3}
optimizer: {_name: adam}
lr_scheduler: {_name: fixed}
optimization: {max_update: 6, lr: [0.01], update_freq: [2]}
checkpoint: {save_dir: '???', no_epoch_checkpoints: true}
hydra: {run: {dir: "${checkpoint.save_dir}/hydra"}, job: {chdir: false}}
"""


@pytest.fixture
def place(tmp_path, lm_data):
    """Where the user is: a folder with a configuration and with data; and with files that are named like ours."""
    folder = tmp_path / "the user’s folder"
    (folder / "scripts").mkdir(parents=True)
    for name in ("scripts/__init__.py", "regex.py", "hydra.py"):
        (folder / name).write_text("raise SystemExit('the user’s own file was run')")
    (folder / "own.yaml").write_text(CONFIG)
    shutil.copytree(lm_data, folder / "data")
    return folder


@pytest.mark.slow
def test_two_processes_train_what_one_does(place):
    """Half an update each, interrupted and resumed; relative paths; nothing is left but in the save_dir."""
    two, one = place / "läufe" / "two processes", place / "one"
    command = ("bash", SCRIPT, "own", "task.data=data", "checkpoint.save_dir=läufe/two processes", "--gpus", "2")
    first = run_command(*command, "optimization.max_update=3", cwd=place)
    assert "64 tokens per update = 2 process(es) x 32 x 1 (configured: 64)" in first.stderr
    run_command(*command, cwd=place)
    alone = run_command("bash", SCRIPT, "own.yaml", "task.data=data", "checkpoint.save_dir=one", cwd=place)
    assert "64 tokens per update = 1 process(es) x 32 x 2" in alone.stderr
    weights, expected = (Checkpoint(folder / "checkpoint_last.pt").state["model"] for folder in (two, one))
    for key, weight in expected.items():
        torch.testing.assert_close(weights[key], weight, rtol=1e-4, atol=1e-6)
    lines, expected = (read_log(folder / "train.log") for folder in (two, one))
    assert [line["num_updates"] for line in lines] == [1, 2, 3, 4, 5, 6]
    rare = [[line.get("rare_tokens") for line in found] for found in (lines, expected)]  # none at the first update
    assert rare[0] == rare[1] and rare[0][0] is None and all(rare[0][1:])
    given = {"data", "hydra.py", "own.yaml", "regex.py", "scripts"}
    assert {path.name for path in place.iterdir()} == given | {"läufe", "one"}


@pytest.mark.slow
def test_the_tokens_that_are_told_are_trained(place):
    """Each of two processes reads ten sequences: no multiple of 8, to which fairseq would cut them."""
    (place / "own.yaml").write_text(CONFIG.replace("max_tokens: 32", "max_tokens: 160"))
    command = ("bash", SCRIPT, "own", "task.data=data", "checkpoint.save_dir=s", "optimization.max_update=4")
    said = run_command(*command, "--gpus", "2", cwd=place).stderr
    assert "train: 320 tokens per update = 2 process(es) x 160 x 1 (configured: 320)" in said
    assert max(line["wpb"] for line in read_log(place / "s" / "train.log")) == 320


@pytest.mark.slow
def test_an_error_in_several_processes_is_told_by_its_line(place):
    command = ("bash", SCRIPT, "own", "task.data=data", "checkpoint.save_dir=s", "criterion.agg_alpha=7")
    result = run_command(*command, "--gpus", "2", cwd=place, check=False)
    assert result.returncode == 2
    assert "--agg-alpha between 0 and 1" in result.stderr and "Traceback" not in result.stderr


@pytest.fixture
def launch(monkeypatch, capsys, tmp_path, lm_data):
    """The program in this process, with a number of GPUs: its status, its command as a list, what it said."""

    def launched(config, *arguments, gpus=1, data=f"task.data={lm_data}", save="checkpoint.save_dir=s"):
        given = [argument for argument in (data, save) if argument]
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr("sys.argv", ["train", config, *given, *arguments, "--dry-run"])
        status = run("train", train.main)
        out, err = capsys.readouterr()
        return status, shlex.split(out), err

    return launched


WORDS = "configs/wikitext103/"
TRANSLATION = "configs/wmt14_en_de/"


@pytest.mark.grid(2)
@pytest.mark.parametrize(
    ("config", "gpus", "max_tokens", "update_freq"),
    [
        (f"{WORDS}agg-agg", 1, 4096, 8),
        (f"{WORDS}agg-agg", 4, 4096, 2),
        (f"{WORDS}agg-agg.yaml", 16, 2048, 1),
        (f"{WORDS}f2-mle", 8, 1024, 1),
        (f"{TRANSLATION}agg-big-agg", 2, 8192, 4),
        (f"{TRANSLATION}cosreg-base-mle", 8, 3125, 1),
        (f"{TRANSLATION}agps-base-agps", 4, 8192, 2),
    ],
)
def test_an_update_keeps_its_tokens(launch, config, gpus, max_tokens, update_freq):
    status, command, said = launch(config, gpus=gpus)
    assert status == 0 and "warning" not in said
    assert f"++dataset.max_tokens={max_tokens}" in command and f"++optimization.update_freq=[{update_freq}]" in command
    configured = int(said.partition("configured: ")[2].partition(")")[0].replace(",", ""))
    assert f"train: {configured:,} tokens per update = {gpus} GPU(s) x {max_tokens:,} x {update_freq} " in said
    assert gpus * max_tokens * update_freq == configured
    if gpus > 1:
        assert command[command.index("--nproc-per-node") + 1] == str(gpus) and "--standalone" in command
        assert "distributed_training.distributed_backend=nccl" in command
    else:
        assert command[0].endswith("fairseq-hydra-train")
        assert "distributed_training.distributed_world_size=1" in command


def test_tokens_that_cannot_be_kept_are_told(launch):
    _, _, said = launch(f"{WORDS}f2-mle", gpus=16)
    assert "16,384 tokens per update = 16 GPU(s) x 1,024 x 1 (configured: 8,192)" in said
    assert "warning: that is 2 times the configured tokens" in said


def test_what_the_user_sets_is_what_each_gpu_reads(launch):
    _, command, said = launch(f"{WORDS}agg-agg", "dataset.max_tokens=1024", gpus=4)
    assert "++optimization.update_freq=[8]" in command and command.count("++dataset.max_tokens=1024") == 2
    assert "32,768 tokens per update = 4 GPU(s) x 1,024 x 8 (configured: 32,768)" in said and "warning" not in said
    _, _, said = launch(f"{WORDS}agg-agg", "optimization.update_freq=[1]", "size=small", gpus=2)
    assert "warning: that is 0.5 times the configured tokens" in said


def test_several_machines(launch):
    options = ("--nodes", "4", "--node-rank", "1", "--master", "first.of-them:29500")
    _, command, said = launch(f"{WORDS}agg-agg", *options, gpus=2)
    assert "= 8 GPU(s) x 4,096 x 1" in said
    placed = shlex.split("--nnodes 4 --node-rank 1 --master-addr first.of-them --master-port 29500 --nproc-per-node 2")
    start = command.index("--nnodes")
    assert command[start : start + len(placed)] == placed


@pytest.mark.grid(2)
@pytest.mark.parametrize("name", ["one,two", "choice(1,2)", "1..2", "a b'c", "ü=1"])
def test_a_folder_of_any_name(launch, tmp_path, name):
    (tmp_path / name).mkdir()
    status, command, said = launch(f"{WORDS}agg-agg", data=f"task.data={name}", save=f"checkpoint.save_dir=runs/{name}")
    assert status == 0, said
    with initialize(version_base="1.1", config_path=None):
        config = compose(overrides=[one for one in command if one.startswith(("++task", "++checkpoint"))])
    assert (config.task.data, config.checkpoint.save_dir) == (name, f"runs/{name}")


def test_any_option_of_fairseq_and_any_text(launch):
    text = "common.wandb_project=it's (ü)"
    arguments = ("common.fp16=false", "model.decoder_learned_pos=true", text, "~model.dropout")
    status, command, said = launch(f"{WORDS}agg-agg", *arguments)
    assert status == 0, said
    assert command[-4:] == [
        "++common.fp16=false", "++model.decoder_learned_pos=true", r"++common.wandb_project='it\'s (ü)'",
        "~model.dropout",
    ]  # fmt: skip


MISTAKES = [
    ("configs/wikitext103/agg-nothing", (), "expected one of agg-agg, agg-alpha"),
    ("nothing", (), "found no configuration nothing; expected one such as configs/"),
    (f"{WORDS}agg-agg", ("size=huge",), "Could not find 'size/huge' Available options in 'size': agg"),
    (f"{WORDS}agg-agg", ("size",), "found the argument 'size'; expected KEY=VALUE"),
    (f"{WORDS}agg-agg", ("common.nothing=1",), "Key 'nothing' not in 'CommonConfig'"),
    (f"{WORDS}agg-agg", ("criterion.nothing=1",), "Key 'nothing' not in 'AggCriterionConfig'"),
    (f"{TRANSLATION}agg-base-agg", ("model.nothing=1",), "model.nothing: found no such option of transformer"),
    (f"{WORDS}agg-agg", ("criterion._name=nothing",), "criterion._name: found nothing; expected one of"),
    (f"{WORDS}agg-agg", ("criterion.agg_gates=g3",), "Invalid value 'g3', expected one of [both, g1, g2"),
    (f"{WORDS}agg-agg", ("optimization.max_update=many",), "'many' of type 'str' could not be converted to Integer"),
    (f"{WORDS}agg-agg", ("task.data=nowhere",), "task.data: found no folder nowhere; expected"),
    (f"{WORDS}agg-agg", ("task.data=a:b/data-bin",), "found no folder a of a:b/data-bin, which fairseq splits at ':'"),
    (f"{WORDS}agg-agg", ("size=small,tiny",), "Could not find 'size/small,tiny'"),
    (f"{WORDS}f2-face", (), "found no checkpoint.finetune_from_model; expected checkpoint.finetune_from_model="),
    (f"{WORDS}f2-face", ("checkpoint.finetune_from_model=x.pt",), "found no file x.pt; expected a checkpoint"),
    (f"{WORDS}agg-agg", ("optimization.update_freq=[4,2]",), "expected a number of tokens, and one of batches"),
    (f"{WORDS}agg-agg", ("--nodes", "2"), "expected all three"),
]


@pytest.mark.grid(3)
@pytest.mark.parametrize(("config", "arguments", "message"), MISTAKES)
def test_mistakes_are_one_line(launch, config, arguments, message):
    status, command, said = launch(config, *arguments)
    assert status == 2 and not command
    assert said.count("\n") == 1 and said.startswith("train: error: ") and message in said, said


def test_what_has_to_be_given(launch):
    status, _, said = launch(f"{WORDS}agg-agg", data=None, save=None)
    assert status == 2 and "found no checkpoint.save_dir, task.data; expected" in said


def test_a_file_that_is_no_yaml(launch, tmp_path):
    (tmp_path / "own.yaml").write_text("common: {cpu: true")
    status, _, said = launch("own")
    assert status == 2 and said.count("\n") == 1 and "own: while parsing" in said


def test_no_gpu(launch):
    """A dry run needs none; `test_too_few_processors` has the errors of a training."""
    status, _, said = launch(f"{WORDS}agg-agg", gpus=0)
    assert status == 0 and "32,768 tokens per update = 1 GPU(s) x 4,096 x 8" in said
    status, _, said = launch(f"{WORDS}agg-agg", "--gpus", "8", gpus=0)
    assert status == 0 and "32,768 tokens per update = 8 GPU(s) x 4,096 x 1" in said
    assert launch(f"{WORDS}agg-agg", "size=tiny", gpus=0)[0] == 0


def test_help_teaches():
    said = run_command("bash", SCRIPT, "--help").stdout
    for word in ("CONFIG", "KEY=VALUE", "--gpus", "--node-rank", "--dry-run", "srun", "size=small", "resume"):
        assert word in said
