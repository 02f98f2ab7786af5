"""Two real workers over gloo: they train as one process with the joined batch, and stay the same bit by bit."""

import contextlib
import functools
import itertools
import sys
import types
from typing import NamedTuple

import pytest
import torch

from agg_fairseq.data.binarized import load_dictionary
from tests.conftest import ROOT, call, called, train_by_two_workers
from tests.workers import trained, trained_by_two

pytestmark = pytest.mark.slow  # command lines: processes of their own

MODEL = (
    "--task language_modeling --decoder-layers 1 --decoder-embed-dim 16 --decoder-input-dim 16 --decoder-output-dim 16 "
    "--decoder-ffn-embed-dim 16 --decoder-attention-heads 2 --tokens-per-sample 16 --dropout 0"
).split()
TRAINING = (
    "--cpu --seed 3 --num-workers 0 --disable-validation --optimizer sgd --momentum 0.9 --lr 0.5 --max-update 6 "
    "--required-batch-size-multiple 1 --curriculum 100 --no-epoch-checkpoints"
).split()
"""Batches keep their order, so that a batch of each worker makes up one of a single process. The optimizer is SGD: Adam
divides what is nearly nothing by what is nearly nothing."""

CRITERIONS = {
    "agg": ("--criterion", "agg", "--agg-rare-fraction", "0.3"),
    "agg-current": ("--criterion", "agg", "--agg-rare-fraction", "0.3", "--agg-count-current-batch"),
    "agps": ("--criterion", "agps", "--agps-rare-rank", "20", "--agps-mu1", "30", "--agps-mu2", "5"),
    "f2_softmax": ("--criterion", "f2_softmax", "--f2-assignment", "equal-token", "--f2-classes", "4"),
    "mle": ("--criterion", "mle"),
    "cosreg": ("--criterion", "cosreg"),
    "face": ("--criterion", "face"),
    "freeze_rare": ("--criterion", "freeze_rare"),
    "unlikelihood": ("--criterion", "unlikelihood"),
    "unlikelihood_sequence": (
        "--criterion", "unlikelihood_sequence", "--ul-prefix-length", "5", "--ul-completion-length", "8"
    ),
}  # fmt: skip

SENTENCES = {"even": {1: 8, 3: 4}, "uneven": {1: 6, 3: 2}, "mixed": {3: 3}}
"""Of a worker's batch, by --update-freq. Of the corpus' 62 blocks they leave both workers equally many batches; none to
worker 1 for the sixth update; none to worker 1 for the second of two micro-batches of the fourth update."""

TOLERANCE = 1e-5
"""Of the largest entry of a tensor: float32 sums of some hundred terms in another order, over six updates."""


class Case(NamedTuple):
    criterion: str
    update_freq: int = 3
    tied: bool = True
    ddp: str = "legacy_ddp"
    batches: str = "uneven"
    event: str = ""

    def __str__(self):
        parts = (self.criterion, self.update_freq, "tied" if self.tied else "untied", self.ddp, self.batches)
        return "-".join(map(str, parts)) + self.event

    def options(self, joined=1):
        """A command line, with so many of a worker's batches in each."""
        model = "transformer_lm_f2" if self.criterion == "f2_softmax" else "transformer_lm"
        return [
            "--user-dir", ROOT / "agg_fairseq", *MODEL, "--arch", model, *TRAINING, *CRITERIONS[self.criterion],
            *(["--share-decoder-input-output-embed"] if self.tied else []), "--update-freq", self.update_freq,
            "--batch-size", joined * SENTENCES[self.batches][self.update_freq],
        ]  # fmt: skip

    def options_of_one(self):
        """The command line of the single process with the joined batches.

        unlikelihood_sequence cuts its prefixes from the head of each micro-batch, so that it is given the micro-batches
        of both workers, and no larger ones.
        """
        if self.criterion == "unlikelihood_sequence":
            return [*self.options(), "--update-freq", 2 * self.update_freq]
        return self.options(joined=2)


FAILING = Case("agps", event=" out of memory")
FAST = [Case("agg"), Case("agps"), Case("f2_softmax"), FAILING]
EVERY_CRITERION = [Case(name) for name in CRITERIONS]
MIXED = [Case(name, batches="mixed") for name in ("agg", "agps", "face")]
GRID = [
    Case(*values, batches)
    for *values, batches in itertools.product(
        ("agg", "agps", "f2_softmax"), (1, 3), (True, False), ("pytorch_ddp", "legacy_ddp"), ("even",)
    )
]
BY_TORCH = [Case(name, 1, tied=False, ddp="pytorch_ddp") for name in ("agg", "agps", "f2_softmax")]
ALL = [*EVERY_CRITERION, *BY_TORCH, *MIXED, *GRID, FAILING]


def each(cases):
    return pytest.mark.parametrize(
        "case", [pytest.param(case, id=str(case), marks=[] if case in FAST else pytest.mark.slow) for case in cases]
    )


class Trainings:
    """The records of cases: by two workers, all in one pair of processes, and by one."""

    def __init__(self, data, cases, folder):
        lines = {str(case): [data, *case.options(), "--ddp-backend", case.ddp, "--no-save"] for case in cases}
        self._data, self._two = data, trained_by_two(lines, folder)

    def two(self, case):
        return self._two[str(case)]

    @functools.cache  # noqa: B019 — as long as the fixture
    def _one(self, options):
        return trained(self._data, *options, "--no-save")

    def one(self, case):
        return self._one(tuple(case.options_of_one()))


@pytest.fixture(scope="module")
def fast(lm_data, tmp_path_factory):
    return Trainings(lm_data, FAST, tmp_path_factory.mktemp("fast"))


@pytest.fixture(scope="module")
def slow(lm_data, tmp_path_factory):
    return Trainings(lm_data, [case for case in ALL if case not in FAST], tmp_path_factory.mktemp("slow"))


@pytest.fixture
def trainings(request, case):
    return request.getfixturevalue("fast" if case in FAST else "slow")


def check_replicas(case, workers):
    """Bit for bit the same on both workers after every update; a micro-batch that failed has left no gates."""
    for first, second in zip(*(worker["updates"] for worker in workers), strict=True):
        for kind in ("weights", "gradients", "counts"):
            for name, tensor in first[kind].items():
                assert torch.equal(tensor, second[kind][name]), (kind, name)
        assert first["sample_size"] == second["sample_size"]
        assert case == FAILING or same_gates(first, second)


def same_gates(first, second):
    return len(first["gates"]) == len(second["gates"]) and all(
        ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
        for ours, theirs in zip(first["gates"], second["gates"], strict=True)
    )


def check_counts(found, expected):
    assert found["counts"].keys() == expected["counts"].keys()
    for name, tensor in expected["counts"].items():
        assert torch.equal(found["counts"][name], tensor), name


def check_close(found, expected, scales=(1, 1)):
    """All but the bias of the keys, which softmax does not see: its gradient is rounding."""
    for name, tensor in ((name, tensor) for name, tensor in expected.items() if not name.endswith("k_proj.bias")):
        distance = (found[name] * scales[0] - tensor * scales[1]).abs().max()
        assert distance <= TOLERANCE * (tensor * scales[1]).abs().max(), (name, distance)


def check_like_one(case, trainings):
    one, two = trainings.one(case)["updates"], trainings.two(case)[0]["updates"]
    assert len(one) == len(two) == 6
    for expected, found in zip(one, two, strict=True):
        assert found["sample_size"] == pytest.approx(expected["sample_size"], rel=1e-6)
        check_counts(found, expected)
        if case.criterion != "unlikelihood_sequence":
            assert same_gates(found, expected)
        for kind in ("gradients", "weights"):
            check_close(found[kind], expected[kind])
    dummies = [update["dummies"] for update in trainings.two(case)[1]["updates"]]
    assert dummies == [0, 0, 0, 0, 0, int(case.batches == "uneven")]


@each([*EVERY_CRITERION, *BY_TORCH, *GRID])
def test_two_workers_train_as_one_with_the_joined_batch(trainings, case):
    """Counts, gates, gradients and weights after each of six updates; in the uneven ones worker 1 lacks the last."""
    check_like_one(case, trainings)


@each(ALL)
def test_replicas_stay_bit_equal(trainings, case):
    check_replicas(case, trainings.two(case))


@each(MIXED)
def test_a_dummy_batch_after_a_real_one_adds_nothing(trainings, case):
    """fairseq then forgets the tokens of that worker's real batch when it divides; the sum of gradients is whole."""
    one, two = trainings.one(case)["updates"][3], [worker["updates"][3] for worker in trainings.two(case)]
    assert two[1]["dummies"] == 1 and len(two[1]["gates"]) == 2
    check_counts(two[0], one)
    check_close(two[0]["gradients"], one["gradients"], scales=(two[0]["sample_size"], one["sample_size"]))


@each(EVERY_CRITERION)
def test_what_the_workers_exchange(trainings, lm_data, case):
    """Beside fairseq's gradients and logs: at most one sum of V counts for an update, V bytes for a batch of agps."""
    size = len(load_dictionary(lm_data))
    counts, present = ("all_reduce", 8 * size, "torch.int64"), ("all_reduce", size, "torch.uint8")
    micro_batches = [3, 3, 3, 3, 3, 1]
    expected = {
        "agg": [counts] * 6,
        "face": [counts] * 6,
        "agps": [present] * sum(micro_batches),
        "agg-current": [counts] * (sum(micro_batches) + 6),
    }.get(case.criterion, [])
    for worker in trainings.two(case):
        assert [update["micro_batches"] for update in worker["updates"]] == micro_batches
        assert worker["collectives"] == expected
    assert trainings.one(case)["collectives"] == []


@each([FAILING])
def test_agps_survives_a_worker_without_memory(trainings, case):
    """Worker 1 loses its sixth micro-batch, the last of its update; both go on in step.

    In an earlier one of an update, or the only one, fairseq's own reductions would get out of step.
    """
    first, second = trainings.two(case)
    assert len(first["updates"]) == len(second["updates"]) == 6
    assert len(first["collectives"]) == len(second["collectives"]) == 16
    assert [len(update["gates"]) for update in second["updates"]] == [3, 2, 3, 3, 3, 1]
    assert all(weight.isfinite().all() for weight in first["updates"][-1]["weights"].values())


@pytest.mark.parametrize("name", ["agps", "face", "unlikelihood_sequence"])
def test_the_command_line_by_two_workers(lm_data, tmp_path, name):
    """The other criterions' stand beside what else they are tested for."""
    from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint

    case = Case(name)
    called("train", lm_data, *case.options_of_one(), "--save-dir", tmp_path / "one")
    train_by_two_workers(lm_data, tmp_path / "two", *map(str, case.options()))
    one, two = (Checkpoint(tmp_path / run / "checkpoint_last.pt").state for run in ("one", "two"))
    assert two["optimizer_history"][-1]["num_updates"] == 6
    check_close(two["model"], one["model"])


@pytest.fixture
def fairscale(monkeypatch):
    """Stands for fairscale as far as fairseq uses it before it builds the criterion."""
    nn = types.ModuleType("fairscale.nn")
    nn.enable_wrap, nn.wrap = lambda **options: contextlib.nullcontext(), lambda module, **options: module
    monkeypatch.setitem(sys.modules, "fairscale", types.ModuleType("fairscale"))
    monkeypatch.setitem(sys.modules, "fairscale.nn", nn)


@pytest.mark.parametrize("backend", ["fully_sharded", "slowmo"])
@pytest.mark.parametrize("name", CRITERIONS)
def test_workers_without_a_whole_model_are_refused(lm_data, fairscale, name, backend):
    status, _, _, error = call("train", lm_data, *Case(name).options(), "--no-save", "--ddp-backend", backend)
    assert status == 2 and error.count("\n") == 1
    assert f"found --ddp-backend {backend}" in error and "expected --ddp-backend pytorch_ddp or legacy_ddp" in error


def test_slowmo_is_refused_without_fairscale_too(lm_data, monkeypatch):
    monkeypatch.setitem(sys.modules, "fairscale.nn", None)
    status, _, _, error = call("train", lm_data, *Case("agg").options(), "--no-save", "--ddp-backend", "slowmo")
    assert status == 2 and error.count("\n") == 1 and "found --ddp-backend slowmo" in error


@pytest.mark.parametrize("criterion", ["cross_entropy", "mle"])
def test_without_fairscale_sharded_parameters_end_in_fairseqs_own_error(lm_data, monkeypatch, criterion):
    """It wraps the model before it builds the criterion."""
    monkeypatch.setitem(sys.modules, "fairscale.nn", None)
    options = [*Case("mle").options(), "--no-save", "--criterion", criterion, "--ddp-backend", "fully_sharded"]
    with pytest.raises(ImportError, match="fairscale"):
        call("train", lm_data, *options)
