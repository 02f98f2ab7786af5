"""Two real workers over gloo: they train as one process with the joined batch, and stay the same
bit by bit."""

import sys
from collections import Counter
from typing import NamedTuple

import pytest
import torch
from fairseq.models import FairseqLanguageModel, distributed_fairseq_model
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from agg_fairseq.data import binarized
from agg_fairseq.data.binarized import load_dictionary
from tests.conftest import ROOT, called, options_of_workers
from tests.forking import run_together
from tests.small_trainings import LM, TIED

pytestmark = pytest.mark.slow

TRAINING = (
    "--cpu --seed 3 --num-workers 0 --disable-validation --optimizer sgd --momentum 0.9 --lr 0.5 "
    "--max-update 6 --required-batch-size-multiple 1 --curriculum 100 --no-epoch-checkpoints "
    "--load-checkpoint-on-all-dp-ranks --max-tokens 4096"
).split()
"""Batches keep their order, so that a batch of each worker makes up one of a single process. The
optimizer is SGD: Adam divides what is nearly nothing by what is nearly nothing."""

SENTENCES = {"even": {1: 8, 3: 4}, "uneven": {1: 6, 3: 2}}
"""Of a worker's batch, by --update-freq. Of the corpus' 62 blocks they leave both workers equally
many batches, or none to worker 1 for the sixth update, which then has a dummy batch."""

TOLERANCE = 1e-5
"""Of the largest entry of a tensor: float32 sums of some hundred terms in another order, over six
updates."""


class Case(NamedTuple):
    criterion: str  # and its options
    update_freq: int
    tied: bool
    ddp: str
    batches: str

    def options(self, joined=1):
        """Of a worker, or with `joined=2` of the single process that has the batches of both."""
        criterion = self.criterion.split()
        model = "transformer_lm_f2" if criterion[0] == "f2_softmax" else "transformer_lm"
        frequency, sentences = self.update_freq, SENTENCES[self.batches][self.update_freq]
        # agps asks what is in a micro-batch, and unlikelihood_sequence cuts its prefixes from the
        # head of each: their single process has the micro-batches of both workers
        if criterion[0] in ("agps", "unlikelihood_sequence"):
            frequency *= joined
        else:
            sentences *= joined
        sizes = ("--update-freq", frequency, "--batch-size", sentences, *[TIED] * self.tied)
        return [*LM, *TRAINING, "--arch", model, "--criterion", *criterion, *sizes]


AGG = "agg --agg-rare-fraction 0.3"
CURRENT = f"{AGG} --agg-count-current-batch"
AGPS = "agps --agps-rare-rank 20 --agps-mu1 30 --agps-mu2 5"
F2 = "f2_softmax --f2-assignment equal-token --f2-classes 4"
SEQUENCE = "unlikelihood_sequence --ul-prefix-length 5 --ul-completion-length 8"
CASES = {
    "agg": Case(AGG, 1, False, "pytorch_ddp", "uneven"),
    "agg, tied": Case(AGG, 3, True, "legacy_ddp", "even"),
    "agg with the current batch": Case(CURRENT, 3, False, "legacy_ddp", "uneven"),
    "agps": Case(AGPS, 3, False, "pytorch_ddp", "even"),
    "f2": Case(F2, 1, True, "pytorch_ddp", "even"),
    "cosreg": Case("cosreg", 3, True, "pytorch_ddp", "even"),
    "face": Case("face", 3, False, "pytorch_ddp", "uneven"),
    "freeze_rare": Case("freeze_rare", 1, False, "legacy_ddp", "even"),
    "unlikelihood": Case("unlikelihood", 1, True, "pytorch_ddp", "uneven"),
    "unlikelihood_sequence": Case(SEQUENCE, 3, True, "legacy_ddp", "uneven"),
}  # fmt: skip
"""Each criterion, in as many ways as there are."""
FAILING = {"out of memory": Case(CURRENT, 3, True, "legacy_ddp", "uneven")}
COLLECTIVES = "all_reduce all_gather broadcast reduce_scatter barrier all_gather_object".split()


def copy_tensors(trainer):
    """Weights, gradients as the optimizer gets them, buffers and counts of the criterion."""
    found = {"weights": {}, "gradients": {}, "counts": {}}
    for name, parameter in trainer.get_model().named_parameters():
        found["weights"][name] = parameter.detach().clone()
        found["gradients"][name] = parameter.grad.clone()
    criterion = trainer.get_criterion()
    counts = vars(criterion.gating.counter or criterion.gating)
    for name, tensor in (*counts.items(), *criterion.named_buffers()):
        if torch.is_tensor(tensor):
            found["counts"][name] = tensor.clone()
    return found


def record_training(*arguments, failing_batch=None):
    """Runs fairseq-train in this process; the model may find no memory in a micro-batch of the
    second update, counted from 1.

    `updates`: of each, the tensors after it, and the numbers of `micro_batches` and `dummies`.
    `collectives`: (name, bytes, data type) of each that this package asked for, in order.
    `counts`: how often the training split was counted.
    """
    record, seen = {"updates": [], "collectives": [], "counts": 0}, Counter()

    def update(original, trainer, *arguments, **options):
        seen.clear()
        result = original(trainer, *arguments, **options)
        record["updates"].append(copy_tensors(trainer) | seen)
        return result

    def count(original, *arguments):
        record["counts"] += 1
        return original(*arguments)

    def micro_batch(original, *arguments, ignore_grad=False, **options):
        seen.update(micro_batches=1, dummies=int(ignore_grad))
        return original(*arguments, ignore_grad=ignore_grad, **options)

    def forward(original, *arguments, **options):
        if len(record["updates"]) == 1 and seen["micro_batches"] == failing_batch:
            raise RuntimeError("out of memory, says a test")
        return original(*arguments, **options)

    def collective(original, *arguments, **options):
        frame = sys._getframe(2)
        while "/fairseq/distributed/" in frame.f_code.co_filename:
            frame = frame.f_back
        if frame.f_code.co_filename.startswith(str(ROOT / "agg_fairseq")):
            tensor = arguments[0]
            size = tensor.numel() * tensor.element_size()
            record["collectives"].append((original.__name__, size, str(tensor.dtype)))
        return original(*arguments, **options)

    def fake_ddp(original, *arguments, device_ids, output_device, **options):
        """Leaves out the devices that fairseq names to PyTorch's wrapper."""
        return original(*arguments, **options)

    def around(original, wrapper):
        return lambda *arguments, **options: wrapper(original, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        for owner, name, wrapper in [
            (Trainer, "train_step", update),
            (FairseqTask, "train_step", micro_batch),
            (binarized, "_training_counts", count),
            (FairseqLanguageModel, "forward", forward),
            (distributed_fairseq_model, "DistributedDataParallel", fake_ddp),
            *((torch.distributed, name, collective) for name in COLLECTIVES),
        ]:
            patch.setattr(owner, name, around(getattr(owner, name), wrapper))
        called("train", *arguments)
    return record


def run_worker(trainings, folder, rank, options):
    for name, arguments in trainings.items():
        fails = rank == 1 and name in FAILING
        record = record_training(*arguments, *options, failing_batch=3 if fails else None)
        torch.save(record, folder / f"{name}-{rank}.pt")


@pytest.fixture(scope="module")
def two_workers(lm_data, tmp_path_factory):
    """The records of all cases by two workers, which are one pair of processes."""
    folder, trainings = tmp_path_factory.mktemp("workers"), {}
    for name, case in (CASES | FAILING).items():
        trainings[name] = [lm_data, *case.options(), "--ddp-backend", case.ddp, "--no-save"]
    ranks = enumerate(options_of_workers(folder))
    calls = [(trainings, folder, rank, options) for rank, options in ranks]
    assert run_together(run_worker, *calls) == [0, 0]
    return lambda name: [torch.load(folder / f"{name}-{rank}.pt") for rank in range(2)]


def assert_same_replicas(workers):
    assert len(workers[0]["updates"]) == len(workers[1]["updates"]) == 6
    for first, second in zip(*(worker["updates"] for worker in workers), strict=True):
        for kind in ("weights", "gradients", "counts"):
            for name, tensor in first[kind].items():
                assert torch.equal(tensor, second[kind][name]), (kind, name)


@pytest.mark.parametrize("name", CASES)
def test_two_workers_train_as_one_with_the_joined_batch(two_workers, lm_data, name):
    """Counts, gradients and weights after each of six updates, and what the workers exchange."""
    case, two = CASES[name], two_workers(name)
    one = record_training(lm_data, *case.options(2), "--no-save")
    assert_same_replicas(two)
    dummies = [update["dummies"] for update in two[1]["updates"]]
    assert dummies == [0, 0, 0, 0, 0, int(case.batches == "uneven")]
    for expected, found in zip(one["updates"], two[0]["updates"], strict=True):
        assert found["counts"].keys() == expected["counts"].keys()
        for counted, tensor in expected["counts"].items():
            assert torch.equal(found["counts"][counted], tensor)
        for kind in ("gradients", "weights"):
            for parameter, tensor in expected[kind].items():
                # softmax does not see this one: its gradient is rounding
                if not parameter.endswith("k_proj.bias"):
                    distance = (found[kind][parameter] - tensor).abs().max()
                    assert distance <= TOLERANCE * tensor.abs().max(), (kind, parameter, distance)

    # Beside fairseq's gradients and logs: at most one sum of V counts for an update, and for a
    # micro-batch where these are counted at once.
    counts = ("all_reduce", 8 * len(load_dictionary(lm_data)), "torch.int64")
    for worker in two:
        sums = 6 if case.criterion in (AGG, "face") else 0
        if case.criterion == CURRENT:
            sums = 6 + sum(update["micro_batches"] for update in worker["updates"])
        assert worker["collectives"] == [counts] * sums
    assert one["collectives"] == []
    assert [worker["counts"] for worker in two] == [one["counts"], 0]


def test_the_current_batch_survives_a_worker_without_memory(two_workers):
    """Worker 1 loses the last micro-batch of its second update: in another, fairseq would get out
    of step."""
    first, second = two_workers(*FAILING)
    assert_same_replicas((first, second))
    assert len(first["collectives"]) == len(second["collectives"]) == 22
    assert all(weight.isfinite().all() for weight in first["updates"][-1]["weights"].values())
