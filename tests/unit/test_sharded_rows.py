"""W that is sharded by rows over processes (gloo), beside one process with all of it, in float64."""

import re

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd import grad
from torch.testing import assert_close

from agg_fairseq.functional import (
    SmoothedLikelihood,
    TrainingLoss,
    chunked,
    chunks,
    gated_linear,
    naive_gated_cross_entropy,
)
from agg_fairseq.gating import AggGating
from tests.conftest import run_command, write_lines, zipf_text
from tests.processes import run_processes
from tests.unit.test_training_loss import problem

V, D = 57, 5
SMALL = {"rtol": 1e-12, "atol": 1e-13}


def shard(mesh, h, w, b):
    """H, the same in all processes, and their rows of W and b, as DTensors; and leaves of them."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    h = h.detach().requires_grad_()
    w, b = (distribute_tensor(one.detach(), mesh, [Shard(0)]).requires_grad_() for one in (w, b))
    return DTensor.from_local(h, mesh, [Replicate()]), (h, w, b)


def assert_same(loss, inputs, expected, expected_inputs):
    assert_close(chunks.whole(loss.detach()), expected.detach(), **SMALL)
    for found, right in zip(grad(loss, inputs), grad(expected, expected_inputs), strict=True):
        assert_close(chunks.whole(found), right, **SMALL)


def any_loss(logits, chunk):
    nll = F.cross_entropy(logits, chunk.target, reduction="none")
    z = logits.logsumexp(1)
    return {"losses": nll + 0.1 * z**2 * chunk.features.sum(1), "z": z}


def check_losses():
    from torch.distributed.tensor.parallel import loss_parallel

    chunks.CHUNK_ELEMENTS, chunks.CHUNK_ROWS = 4 * V, 1
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    h, w, b, y, weights, gates = problem(3, 7, V, D)
    for some in (gates, None):
        features, inputs = shard(mesh, h, w, b)
        logits = gated_linear(features, *inputs[1:], y, some)
        assert len(logits.to_local()[0, 0]) < V
        assert_close(logits.full_tensor(), F.linear(h, w, b), **SMALL)
        with loss_parallel():
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum")
            right = naive_gated_cross_entropy(h, w, y, bias=b, gates=some)
            assert_same(loss, inputs, right, (h, w, b))

        for function in (SmoothedLikelihood(0.1, weights.flatten()), any_loss):
            options = {"gates": some, "predict": True}
            loss, values = chunked(function, features, inputs[1], y, bias=inputs[2], **options)
            right, expected = chunked(function, h, w, y, bias=b, **options)
            assert_close(values, expected, **SMALL)
            assert_same(loss, inputs, right, (h, w, b))

        output = TrainingLoss(ul_alpha=0.5)(features, inputs[1], y, inputs[2], gates=some)
        right = TrainingLoss(ul_alpha=0.5)(h, w, y, b, gates=some)
        assert_same(output.loss, inputs, right.loss, (h, w, b))

    columns = inputs[1].redistribute(placements=[type(features.placements[0])()])
    for given in ((h.detach(), inputs[1]), (features, columns)):
        with pytest.raises(ValueError, match="sharded by rows over one dimension of a mesh"):
            gated_linear(*given, None, y, gates)


@pytest.mark.parametrize("processes", [2, 4])
def test_losses(processes, tmp_path):
    """`gated_linear` under torch's loss_parallel, `chunked` with its own formula and with any loss;
    57 rows are 15, 15, 15 and 12."""
    run_processes(check_losses, processes, tmp_path)


class Head(torch.nn.Linear):
    """The last stage of a pipeline."""

    gates = None  # of all micro-batches

    def forward(self, features, labels):
        return gated_linear(features, self.weight, None, labels, self.gates)


def cross_entropy(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def check_pipeline():
    """Two stages and two micro-batches. The last stage forms the gates before a step, in the first of
    which torch runs the stages once more."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, (group, _) = dist.get_rank(), dist.new_subgroups(group_size=1)
    rule = AggGating(V, rare_fraction=0.3, window=2, process_group=group)
    stages, alone = [], []
    for modules in (stages, alone):
        torch.manual_seed(0)
        modules.append(torch.nn.Embedding(V, D, dtype=torch.float64))
        modules.append(Head(D, V, bias=False, dtype=torch.float64))
    pipeline = ScheduleGPipe(
        PipelineStage(stages[rank], rank, 2, torch.device("cpu")), 2, loss_fn=cross_entropy
    )
    parameters = [one.weight for one in (stages[rank], *alone)]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    for update in range(3):
        tokens = torch.randint(V, (4, 7), generator=torch.Generator().manual_seed(update))
        inputs, target = tokens[:, :-1], tokens[:, 1:].contiguous()
        stages[1].gates = alone[1].gates = rule(target)
        pipeline.step(**{"target": target, "labels": target}) if rank else pipeline.step(inputs)
        cross_entropy(alone[1](alone[0](inputs), target), target).backward()
        optimizer.step()
        optimizer.zero_grad()
        rule.commit_update()
    assert_close(stages[rank].weight, alone[rank].weight, **SMALL)


def test_pipeline(tmp_path):
    run_processes(check_pipeline, 2, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_the_example_prints_the_losses_of_one_process(processes, tmp_path):
    write_lines(tmp_path / "text", zipf_text(100))
    example, options = "examples/sharded_rows.py", ("--updates", 4, tmp_path / "text")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes)
    alone = run_command("python", example, *options).stdout
    shared = run_command("python", *launcher, example, "--tensor-parallel", 2, *options).stdout
    losses = [re.findall(r"loss ([\d.]+) nats", printed) for printed in (alone, shared)]
    assert len(losses[0]) == 4 and losses[0] == losses[1]  # twelve digits
    assert shared.count("MB; peak") == processes
