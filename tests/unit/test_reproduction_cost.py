"""What a training takes, estimated from its configuration, which is read as hydra reads it; what --dry-run prints."""

import re
import subprocess
import sys

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from scripts.experiments.cost import cost_of, described, settings
from scripts.experiments.entries import EXPERIMENTS
from scripts.experiments.experiment import SCALES, Workspace
from scripts.experiments.multi30k import translation
from scripts.experiments.training import overrides_of
from tests.conftest import ROOT
from tests.reproducing import run_entry_here

MODELS = {model.name: model for experiment in EXPERIMENTS.values() for model in experiment.models()}
READ = re.compile(
    r"(task|dataset|model|optimization|checkpoint)\.(\w*tokens\w*|update_freq|max_\w+|\w+_interval_updates|\w+_layers|"
    r"\w+_embed_dim|decoder_hidden_size|share_\w+)"
)
"""The settings that the estimates read."""


@pytest.mark.grid(8)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_settings_are_those_that_hydra_composes(name, scale, tmp_path):
    model = MODELS[name]
    overrides = [word for word in overrides_of(Workspace(scale, tmp_path), model) if not word.startswith("common.")]
    file = ROOT / "configs" / f"{model.config}.yaml"
    with initialize_config_dir(str(file.parent), version_base="1.1"):
        config = compose(file.stem, overrides)
    composed = OmegaConf.to_container(config, resolve=False)
    expected = {f"{part}.{key}": str(value).lower() for part in composed for key, value in composed[part].items()}
    found = {key: value for key, value in settings(file, overrides).items() if READ.fullmatch(key)}
    assert found == {key: value for key, value in expected.items() if READ.fullmatch(key)}
    assert len(found) >= 8


@pytest.mark.parametrize(
    ("name", "millions", "billions", "hours", "gigabytes"),
    [  # as in docs/reproduction.md
        ("agg-agg", 347, 1.64, 19.0, 12.5),
        ("agps-agps", 156, 1.64, 8.5, 5.6),
        ("f2-mle", 68, 1.64, 3.7, 2.5),
        ("agg-base-agg", 65, 12.45, 26.9, 5.4),
        ("agg-big-agg", 218, 12.45, 90.4, 18.3),
        ("cosreg-mle", 34, 1.57, 1.7, 0.8),
    ],
)
def test_cost_at_the_published_scale(name, millions, billions, hours, gigabytes, tmp_path):
    """6 operations per parameter and token at 50 TFLOP/s; 12 bytes per parameter and checkpoint."""
    cost = cost_of(Workspace("paper", tmp_path), MODELS[name], 1)
    assert round(cost.parameters / 1e6) == millions and round(cost.tokens / 1e9, 2) == billions
    assert round(cost.gpu_hours, 1) == hours == round(cost.parameters * cost.tokens * 6 / 50e12 / 3600, 1)
    assert round(cost.disk / 1e9, 1) == gigabytes


def test_sum_of_a_table(tmp_path):
    *lines, total = described("agg-3", EXPERIMENTS["agg-3"], [Workspace("paper", tmp_path)], 8)
    assert [line.partition(":")[0] for line in lines] == ["agg-mle", "agg-agg"]
    assert all("32,768 tokens per update = 8 GPU(s) x 4,096 x 1, 50,000 updates" in line for line in lines)
    assert total.startswith(
        "agg-3: 2 trainings, 38 GPU hours, 4.7 hours on 8 GPUs; 25 GB of checkpoints, 2.0 GB of data"
    )


def test_a_model_of_the_first_seed_alone_is_not_counted_for_the_others(tmp_path):
    workspaces = [Workspace("tiny", tmp_path, seed=seed, models=f"seed-{seed}") for seed in (1, 2)]
    *lines, total = described("multi30k", translation(updates=20, vocabulary=500, dimension=8)[0], workspaces, 1)
    names = [line.partition(":")[0] for line in lines]
    assert "seed-1/f2" in names and "seed-2/mle" in names and "seed-2/f2" not in names
    assert total == "multi30k: 11 trainings on a CPU"


def test_what_is_trained_is_not_counted(tmp_path):
    (tmp_path / "agg-mle").mkdir()
    (tmp_path / "agg-mle" / "done").touch()
    *lines, _ = described("agg-3", EXPERIMENTS["agg-3"], [Workspace("paper", tmp_path)], 8)
    assert [line.partition(":")[0] for line in lines] == ["agg-agg"]


def test_what_the_command_line_changes(tmp_path):
    """Overrides count; where they cannot be read, nothing is estimated."""
    workspace = Workspace("paper", tmp_path, overrides=("optimization.max_update=10", "optimization.update_freq=[3]"))
    cost = cost_of(workspace, MODELS["agg-agg"], 2)
    assert (cost.updates, cost.batches.tokens) == (10, 2 * 3 * 4096)
    workspace = Workspace("paper", tmp_path, overrides=("optimization.max_update=${one}",))
    assert described("agg-1", EXPERIMENTS["agg-1"], [workspace], 1)[0] == "agg-study-mle: not estimated"


def test_dry_run_tells_the_cost_and_the_status(tmp_path):
    run = run_entry_here("agg-3", "--dry-run", "--gpus", "4", "--output", tmp_path / "out")
    commands = [line for line in run.stdout.splitlines() if not line.startswith("# ")]
    assert sum("/scripts/train.sh " in line and line.endswith(" --gpus 4") for line in commands) == 2
    assert "# agg-3: 2 trainings, 38 GPU hours, 9.5 hours on 4 GPUs" in run.stdout
    assert "# The published scale has not been run with this package yet." in run.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ("reproduce.sh --help", "usage: reproduce.sh"),
        ("reproduce.sh --list", "agg-figure-5"),
        ("reproduce.sh agg-3 --dry-run --gpus 8", "38 GPU hours"),
        ("reproduce.sh agg-99", "found the entry 'agg-99'"),
        ("demo.sh --dry-run", "demo: 2 trainings on a CPU"),
        ("train.sh --help", "usage: train.sh"),
        ("wikitext2/prepare.sh --dry-run", "WikiText-2, --tokenizer words"),
        ("wmt14_en_de/prepare.sh --dry-run", "wmt14_en_de in data/wmt14_en_de"),
    ],
)
def test_arguments_are_read_in_a_fresh_clone(arguments, printed, clone):
    """No environment is set up, and nothing but the standard library is there."""
    script, *rest = arguments.split()
    environment = {"PATH": f"{clone}/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["bash", str(clone / "scripts" / script), *rest]
    result = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert printed in result.stdout + result.stderr and "setup" not in result.stderr
    assert result.returncode == (2 if "agg-99" in arguments else 0)


@pytest.mark.slow
def test_work_begins_with_the_set_up(clone):
    """The program goes on in the environment that setup.sh has made, with its arguments; or ends as setup.sh did."""
    python = clone / ".venv" / "bin" / "python"
    setup = clone / "scripts" / "setup.sh"
    lines = [f"mkdir -p {python.parent}", f"echo '#!/bin/sh' > {python}", f"echo 'echo in .venv: $*' >> {python}"]
    setup.write_text("\n".join([*lines, f"chmod +x {python}"]))
    command = ["bash", str(clone / "scripts" / "reproduce.sh"), "agg-3", "--show", "--output", "a b"]
    environment = {"PATH": f"{clone}/bin:/usr/bin:/bin"}
    result = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout == f"in .venv: -S {clone}/scripts/run.py scripts.experiments agg-3 --show --output a b\n"
    setup.write_text("echo no compiler >&2; exit 2")
    python.unlink()
    result = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", "no compiler\n")


@pytest.mark.slow
@pytest.mark.parametrize("script", ["train.sh configs/wikitext103/agg-agg", "demo.sh --model 'mle --criterion mle'"])
def test_a_dry_run_that_needs_fairseq_sets_nothing_up(script, clone):
    """It goes on in a Python that has fairseq, or says in one line what is missing."""
    command = f"bash {clone}/scripts/{script} --dry-run"
    environment = {"PATH": f"{clone}/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}

    def started():
        return subprocess.run(command, shell=True, cwd=clone, env=environment, capture_output=True, text=True)

    result = started()
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "error: found no Python with torch, fairseq, hydra, by which --dry-run checks a conf" in result.stderr
    assert result.stderr.endswith(f"; bash {clone}/scripts/setup.sh makes one, .venv\n")
    python = clone / "bin" / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo with fairseq: $*\n')
    python.chmod(0o755)
    result = started()
    assert (result.returncode, result.stderr) == (0, "") and result.stdout.startswith("with fairseq: -S ")
    assert "--dry-run" in result.stdout and not (clone / ".venv").exists()


@pytest.fixture
def clone(tmp_path):
    """A copy of the sources without .venv, and a python3 that finds no installed package."""
    for name in ("scripts", "agg_fairseq", "configs"):
        (tmp_path / name).mkdir()
        for path in (ROOT / name).rglob("*"):
            if path.suffix in (".py", ".sh", ".yaml"):
                copy = tmp_path / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
    (tmp_path / "scripts" / "setup.sh").write_text("echo setup >&2; exit 2\n")
    (tmp_path / "bin").mkdir()
    for name in ("python3", "python3.10", "python3.11", "python3.12"):
        python = tmp_path / "bin" / name
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
    return tmp_path
