"""Trainings by fairseq-train and by transformers on a GPU, side by side; what is measured of them."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import USER_DIR, preprocessed, read_lines, run_command, zipf_splits

UPDATES = 12
TRAINING = (
    "--task language_modeling --arch transformer_lm --decoder-layers 1 --decoder-embed-dim 32 "
    "--decoder-ffn-embed-dim 32 --decoder-attention-heads 2 --share-decoder-input-output-embed "
    "--dropout 0 --tokens-per-sample 64 --max-tokens 256 --optimizer adam --lr 0.003 --seed 3 "
    "--adam-betas (0.9,0.98) --clip-norm 1 --num-workers 0 --log-format json --log-interval 1 "
    f"--no-epoch-checkpoints --max-update {UPDATES} --required-batch-size-multiple 1"
).split()
AGG = "--agg-rare-fraction 0.3 --agg-window 4"
CRITERIONS = {
    "cross_entropy": "",
    "mle": "",
    "agg": AGG,
    "agps": "--agps-rare-rank 30",
    "cosreg": "",
    "unlikelihood": "",
    "unlikelihood_sequence": "",
    "face": "",
    "freeze_rare": "",
    "f2_softmax": "--arch transformer_lm_f2",
}
RUNS = {  # name: criterion and options
    **{f"{name}{way}": (name, f"{options} {way}")
       for name, options in CRITERIONS.items() for way in ("--fp16", "--amp")},
    "agg": ("agg", AGG),
    "agg--memory-efficient-fp16": ("agg", f"{AGG} --memory-efficient-fp16"),
    "embedding_adam--fp16": ("mle", "--optimizer embedding_adam --embedding-beta2 0.999 --fp16"),
    "coupled_adam--fp16": ("mle", "--optimizer coupled_adam --fp16"),
    "resumed--fp16": ("agg", f"{AGG} --fp16"),
}  # fmt: skip
CPU_RUNS = ("agg", "cross_entropy--fp16", "mle--fp16", "f2_softmax--fp16", "resumed--fp16")
"""Runs that a CPU does too, without half precision."""
BENCHMARKS = (
    "benchmarks.criterion --sizes 3000,1024,64 --repeats 1 --profile",
    "benchmarks.f2_softmax --sizes 3000,1024,64 --repeats 1",
)


def finished(*command):
    """Runs a command of Python's; its output, and the errors if it fails."""
    done = run_command("python", *command, check=False, env={"OMP_NUM_THREADS": "1"})
    return done.stdout + done.stderr if done.returncode == 0 else f"FAILED {done.stderr[-3000:]}"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return preprocessed(tmp_path_factory.mktemp("lm"), zipf_splits(600, 60), "--only-source")


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """The folder of all trainings, and what each printed."""
    from tests.gpu.conftest import DEVICE

    folder = tmp_path_factory.mktemp("runs")
    names = RUNS if DEVICE == "cuda" else CPU_RUNS

    def train(name):
        criterion, options = RUNS[name]
        given = [*TRAINING, "--criterion", criterion, *options.split(), "--user-dir", USER_DIR]
        if DEVICE == "cpu":
            given = [o for o in given if o not in ("--fp16", "--amp")] + ["--cpu"]
        command = ("-m", "fairseq_cli.train", data, *given, "--save-dir", folder / name)
        if name.startswith("resumed"):
            first = finished(*command, "--max-update", UPDATES // 2)
            return first if first.startswith("FAILED") else finished(*command)
        return finished(*command)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return folder, dict(zip(names, pool.map(train, names), strict=True))


def last_loss(output):
    assert not output.startswith("FAILED"), output
    # of two updates, since unlikelihood_sequence makes each other one without likelihood
    return max(map(float, re.findall(r'"loss": "([^"]*)"', output)[-2:]))


@pytest.mark.parametrize("name", RUNS)
def test_every_training_ends(name, runs):
    if name in runs[1]:
        assert 2 < last_loss(runs[1][name]) < 8


def test_equal_trainings_have_equal_losses(runs):
    losses = {name: last_loss(output) for name, output in runs[1].items() if "FAILED" not in output}
    alike = (
        ("cross_entropy--fp16", "mle--fp16", 2e-3),
        ("cross_entropy--amp", "mle--amp", 2e-3),
        ("agg", "agg--fp16", 1e-2),
        ("agg", "agg--amp", 1e-2),
        ("agg", "agg--memory-efficient-fp16", 1e-2),
        ("agg--fp16", "resumed--fp16", 1e-2),
        ("mle--fp16", "embedding_adam--fp16", 0.1),
    )
    for one, other, tolerance in alike:
        if one in losses and other in losses:
            assert losses[one] == pytest.approx(losses[other], rel=tolerance), (one, other)


def test_measures_and_generation_on_the_device(runs, data, device, tmp_path):
    models = [runs[0] / name for name in ("mle--fp16", "f2_softmax--fp16")]
    f2 = models[1]
    command = ("-m", "agg_fairseq", "generate-lm", f2, "--data", data, "--max-texts", "4")
    command += ("--prefix-length", "8", "--length", "8", "--device", device)
    evaluation = ("-m", "agg_fairseq", "eval-lm", *models, "--data", data)
    jobs = {
        place: (*evaluation, "--device", place, "--json", tmp_path / f"{place}.json")
        for place in {"cpu", device}
    }
    for way in ("joint", "greedy-class", "sample-class"):
        jobs[way] = (*command, "--f2-decoding", way, "-o", tmp_path / f"{way}.jsonl")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for output in pool.map(lambda job: finished(*job), jobs.values()):
            assert not output.startswith("FAILED"), output
    for way in ("joint", "greedy-class", "sample-class"):
        assert len(read_lines(tmp_path / f"{way}.jsonl")) >= 4
    numbers = [
        [float(n) for n in re.findall(r"-?\d+\.\d+", (tmp_path / f"{place}.json").read_text())]
        for place in ("cpu", device)
    ]
    assert len(numbers[0]) > 10 and numbers[1] == pytest.approx(numbers[0], rel=0.02, abs=0.01)


@pytest.mark.parametrize("command", BENCHMARKS)
def test_make_bench_ends(command, device):
    if device == "cpu":
        pytest.skip("needs a GPU")
    output = finished("-m", *command.split(), "--device", device)
    assert "FAILED" not in output and output.count("|") > 20, output


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bf16": True},
        {"fp16": True},
        {"bf16": True, "gradient_accumulation_steps": 2},
        {"bf16": True, "gradient_checkpointing": True},
    ],
    ids=str,
)
def test_trainer(options, device, tmp_path):
    pytest.importorskip("transformers")
    if device == "cpu" and options:
        pytest.skip("needs a GPU")
    from tests.small_transformers import dataset, gated_head, gpt2, trainer

    sizes = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "max_steps": 10}
    options = {"use_cpu": device == "cpu", **sizes, **options}
    losses = []
    for is_gated in (False, True):
        model = gpt2()
        gated = gated_head(model, window=5) if is_gated else None
        training = trainer(model, tmp_path, gated, dataset(64, 24), **options)
        losses.append(training.train().training_loss)
    assert losses[1] == pytest.approx(losses[0], rel=0.2)
