"""Shared by all tests: seeds, real text where it is at hand, and small binarised data."""

import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def _seed():
    random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real text; AGG_DATA names it."""
    folder = Path(os.environ.get("AGG_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real text at {folder}; set AGG_DATA")
    return folder


def run_command(*arguments, check=True, cwd=ROOT, env=None, timeout=300):
    """A command of the environment that runs the tests, or one given by its path."""
    command = [str(argument) for argument in arguments]
    if (BIN / command[0]).exists():
        command[0] = str(BIN / command[0])
    result = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=timeout
    )
    if check:
        assert result.returncode == 0, f"{command}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result


def train_by_two_workers(data, save, *options):
    """fairseq-train by two processes over gloo, with the plug-in."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = [
        subprocess.Popen(
            [BIN / "fairseq-train", data, "--user-dir", "agg_fairseq", *options, "--save-dir", save,
             "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", "--distributed-no-spawn",
             "--distributed-world-size", "2", "--distributed-rank", str(rank), "--distributed-init-method",
             f"tcp://127.0.0.1:{port}", "--load-checkpoint-on-all-dp-ranks"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for worker in workers:
        output, _ = worker.communicate(timeout=300)
        assert worker.returncode == 0, output[-3000:]


def zipf_text(lines, words=60, seed=0, prefix="w"):
    """Sentences whose words follow Zipf's law: some frequent, most rare."""
    generator = random.Random(seed)
    vocabulary = [f"{prefix}{index}" for index in range(words)]
    weights = [1 / (rank + 1) for rank in range(words)]
    return [" ".join(generator.choices(vocabulary, weights, k=generator.randint(3, 12))) for _ in range(lines)]


@pytest.fixture(scope="session")
def lm_data(tmp_path_factory):
    """A binarised monolingual corpus of 60 words."""
    folder = tmp_path_factory.mktemp("lm")
    for index, (split, lines) in enumerate({"train": 120, "valid": 20, "test": 20}.items()):
        (folder / split).write_text("\n".join(zipf_text(lines, seed=index)) + "\n")
    run_command(
        "fairseq-preprocess", "--only-source", "--trainpref", folder / "train", "--validpref", folder / "valid",
        "--testpref", folder / "test", "--destdir", folder / "bin",
    )  # fmt: skip
    return folder / "bin"


@pytest.fixture(scope="session")
def mt_data(tmp_path_factory):
    """A binarised parallel corpus with a joined dictionary: the target says the source backwards."""
    folder = tmp_path_factory.mktemp("mt")
    for index, (split, lines) in enumerate({"train": 80, "valid": 12, "test": 12}.items()):
        source = zipf_text(lines, words=30, seed=index)
        target = [" ".join(reversed(line.replace("w", "t").split())) for line in source]
        (folder / f"{split}.en").write_text("\n".join(source) + "\n")
        (folder / f"{split}.de").write_text("\n".join(target) + "\n")
    run_command(
        "fairseq-preprocess", "-s", "en", "-t", "de", "--trainpref", folder / "train", "--validpref",
        folder / "valid", "--testpref", folder / "test", "--destdir", folder / "bin", "--joined-dictionary",
    )  # fmt: skip
    return folder / "bin"
