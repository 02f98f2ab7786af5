"""Two real workers over gloo: they train as one process with the joined batch, and stay the same
bit by bit."""

from typing import NamedTuple

import pytest
import torch

from agg_fairseq.data.binarized import load_dictionary
from tests.conftest import called
from tests.small_trainings import LM
from tests.workers import trained, trained_by_two

pytestmark = pytest.mark.slow

TRAINING = (
    "--cpu --seed 3 --num-workers 0 --disable-validation --optimizer sgd --momentum 0.9 --lr 0.5 "
    "--max-update 6 --required-batch-size-multiple 1 --curriculum 100 --no-epoch-checkpoints "
    "--load-checkpoint-on-all-dp-ranks"
).split()
"""Batches keep their order, so that a batch of each worker makes up one of a single process. The
optimizer is SGD: Adam divides what is nearly nothing by what is nearly nothing."""

CRITERIONS = {
    "agg": "--criterion agg --agg-rare-fraction 0.3",
    "agg-current": "--criterion agg --agg-rare-fraction 0.3 --agg-count-current-batch",
    "agps": "--criterion agps --agps-rare-rank 20 --agps-mu1 30 --agps-mu2 5",
    "f2_softmax": "--criterion f2_softmax --f2-assignment equal-token --f2-classes 4",
    "f2-tuned": "--criterion f2_softmax --finetune-from-model",
    "cosreg": "--criterion cosreg",
    "face": "--criterion face",
    "freeze_rare": "--criterion freeze_rare",
    "unlikelihood": "--criterion unlikelihood",
    "unlikelihood_sequence": "--criterion unlikelihood_sequence --ul-prefix-length 5 "
    "--ul-completion-length 8",
}

SENTENCES = {"even": {1: 8, 3: 4}, "uneven": {1: 6, 3: 2}, "mixed": {3: 3}}
"""Of a worker's batch, by --update-freq. Of the corpus' 62 blocks they leave both workers equally
many batches; none to worker 1 for the sixth update; none to worker 1 for the second of two
micro-batches of the fourth update."""

TOLERANCE = 1e-5
"""Of the largest entry of a tensor: float32 sums of some hundred terms in another order, over six
updates."""


class Case(NamedTuple):
    criterion: str
    update_freq: int
    tied: bool
    ddp: str
    batches: str
    event: str = ""

    def __str__(self):
        parts = (
            self.criterion, self.update_freq, "tied" if self.tied else "untied", self.ddp,
            self.batches,
        )  # fmt: skip
        return "-".join(map(str, parts)) + self.event

    def options(self, checkpoint=None, joined=1):
        model = "transformer_lm_f2" if self.criterion.startswith("f2") else "transformer_lm"
        return [
            *LM, "--max-tokens", 4096, "--arch", model, *TRAINING, *CRITERIONS[self.criterion].split(),
            *([checkpoint] if self.criterion == "f2-tuned" else []),
            *(["--share-decoder-input-output-embed"] if self.tied else []), "--update-freq", self.update_freq,
            "--batch-size", joined * SENTENCES[self.batches][self.update_freq],
        ]  # fmt: skip

    def options_of_one(self, checkpoint):
        """That of the single process with the joined batches; for agps, which asks what is in a
        micro-batch, and unlikelihood_sequence, which cuts its prefixes from the head of each, with
        the micro-batches of both workers."""
        if self.criterion in ("agps", "unlikelihood_sequence"):
            return [*self.options(), "--update-freq", 2 * self.update_freq]
        return self.options(checkpoint, joined=2)


FAILING = Case("agg-current", 3, True, "legacy_ddp", "uneven", event=" out of memory")
CASES = [
    Case("agg", 1, False, "pytorch_ddp", "uneven"),
    Case("agg", 3, True, "legacy_ddp", "mixed"),
    Case("agg-current", 3, False, "legacy_ddp", "uneven"),
    Case("agps", 3, False, "pytorch_ddp", "mixed"),
    Case("agps", 1, True, "legacy_ddp", "even"),
    Case("f2_softmax", 1, True, "pytorch_ddp", "even"),
    Case("f2-tuned", 3, False, "legacy_ddp", "uneven"),
    Case("cosreg", 3, True, "pytorch_ddp", "even"),
    Case("face", 3, False, "pytorch_ddp", "mixed"),
    Case("freeze_rare", 1, False, "legacy_ddp", "even"),
    Case("unlikelihood", 1, True, "pytorch_ddp", "uneven"),
    Case("unlikelihood_sequence", 3, True, "legacy_ddp", "uneven"),
]
"""Each criterion, and all pairs of values of the other four."""


@pytest.fixture(scope="module")
def trainings(lm_data, tmp_path_factory):
    """The records of the cases by two workers, all in one pair of processes; and the command lines
    of one process."""
    folder = tmp_path_factory.mktemp("workers")
    two_classes = ("--f2-classes", 2, "--max-update", 2, "--save-dir", folder / "f2")
    called(
        "train", lm_data, *Case("f2_softmax", 1, True, "legacy_ddp", "even").options(), *two_classes
    )
    checkpoint = folder / "f2" / "checkpoint_last.pt"
    lines = {
        str(case): [lm_data, *case.options(checkpoint), "--ddp-backend", case.ddp, "--no-save"]
        for case in (*CASES, FAILING)
    }
    of_one = {str(case): [lm_data, *case.options_of_one(checkpoint), "--no-save"] for case in CASES}
    return trained_by_two(lines, folder), of_one


def check_replicas(workers):
    """Bit for bit the same on both workers after every update."""
    assert len(workers[0]["updates"]) == len(workers[1]["updates"]) == 6
    for first, second in zip(*(worker["updates"] for worker in workers), strict=True):
        for kind in ("weights", "gradients", "counts"):
            for name, tensor in first[kind].items():
                assert torch.equal(tensor, second[kind][name]), (kind, name)


def check_close(found, expected, scale=1.0):
    """All but the bias of the keys, which softmax does not see: its gradient is rounding."""
    for name, tensor in (
        (name, tensor) for name, tensor in expected.items() if not name.endswith("k_proj.bias")
    ):
        distance = (scale * found[name] - tensor).abs().max()
        assert distance <= TOLERANCE * tensor.abs().max(), (name, distance)


def norm(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors.values()]).norm()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_two_workers_train_as_one_with_the_joined_batch(trainings, lm_data, case):
    """Counts, gradients and weights after each of six updates, and what the workers exchange.

    In the mixed cases, the fourth update has a dummy batch after a real one, whose tokens fairseq
    then forgets when it
    divides: only the direction of the gradient is that of one process.
    """
    two, one = trainings[0][str(case)], trained(*trainings[1][str(case)])
    check_replicas(two)
    for number, (expected, found) in enumerate(
        zip(one["updates"], two[0]["updates"], strict=False)
    ):
        assert found["counts"].keys() == expected["counts"].keys()
        assert all(
            torch.equal(found["counts"][name], tensor)
            for name, tensor in expected["counts"].items()
        )
        if case.batches == "mixed" and number == 3:
            assert two[1]["updates"][3]["dummies"] == 1
            of_one, of_two = expected["gradients"], found["gradients"]
            check_close(of_two, of_one, scale=norm(of_one) / norm(of_two))
            break  # the weights differ from here on
        for kind in ("gradients", "weights"):
            check_close(found[kind], expected[kind])
    if case.batches != "mixed":
        dummies = [update["dummies"] for update in two[1]["updates"]]
        assert len(one["updates"]) == 6 and dummies == [
            0, 0, 0, 0, 0, int(case.batches == "uneven"),
        ]  # fmt: skip

    # Beside fairseq's gradients and logs: at most one sum of V counts for an update, and for a
    # micro-batch where these are counted at once.
    counts = ("all_reduce", 8 * len(load_dictionary(lm_data)), "torch.int64")
    for worker in two:
        micro_batches = sum(update["micro_batches"] for update in worker["updates"])
        assert worker["collectives"] == {
            "agg": [counts] * 6,
            "face": [counts] * 6,
            "agg-current": [counts] * (micro_batches + 6),
        }.get(case.criterion, [])
    assert one["collectives"] == []


def test_the_current_batch_survives_a_worker_without_memory(trainings):
    """Worker 1 loses its sixth micro-batch, the last of its update: in another, fairseq would get
    out of step."""
    first, second = trainings[0][str(FAILING)]
    check_replicas((first, second))
    assert len(first["collectives"]) == len(second["collectives"]) == 22
    assert all(weight.isfinite().all() for weight in first["updates"][-1]["weights"].values())
