"""GatedHead on models whose output layer is sharded by rows over processes, against one process."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.testing import assert_close

from tests.integrations.sharding import whole_weights
from tests.processes import run_processes
from tests.small_transformers import batch, gated_head, gpt2, untied

ROWS, UPDATES = 4, 3


def train(model, share=slice(None), **options):
    """The parameters and the counts after some updates with a part of each batch, float64."""
    from torch.distributed.tensor.parallel import loss_parallel

    gated = gated_head(model, window=2, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for update in range(UPDATES):
        given = {name: one[share] for name, one in batch(ROWS, seed=update).items()}
        with loss_parallel():
            logits, labels = model(**given).logits[:, :-1], given["labels"][:, 1:]
            F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        gated.commit_update()
    return whole_weights(model), gated.gating.counter.appearances


def assert_trains_as_one(model, share, make):
    alone, _ = dist.new_subgroups(group_size=1)
    weights, counts = train(model, share)
    right_weights, right_counts = train(make().double(), process_group=alone)
    assert_close(weights, right_weights, rtol=1e-11, atol=1e-11)
    assert counts.equal(right_counts)


def check_plan(folder):
    """The plan of transformers, of the head and of all else."""
    from transformers import AutoModelForCausalLM

    options = {"tp_plan": "auto", "dtype": torch.float64}
    model = AutoModelForCausalLM.from_pretrained(folder, **options).train()
    assert len(model.lm_head.weight.to_local()) < len(model.lm_head.weight)
    assert_trains_as_one(model, slice(None), untied)


def check_mesh(make):
    """Sharded by rows, also a tied one, and by FSDP2 on the other dimension of the mesh."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = make().double()
    is_tied = model.config.tie_word_embeddings
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    parallelize_module(head, mesh["tp"], ColwiseParallel(use_local_output=False))
    if is_tied:
        parallelize_module(embedding, mesh["tp"], RowwiseParallel(input_layouts=Replicate()))
        head.weight = embedding.weight
    else:
        fully_shard(head, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    rank = mesh["dp"].get_local_rank()
    assert_trains_as_one(model, slice(rank, None, 2), make)


def test_plan_of_transformers(tmp_path):
    untied().save_pretrained(tmp_path / "model")
    run_processes(check_plan, 2, tmp_path, str(tmp_path / "model"))


@pytest.mark.parametrize("make", [untied, gpt2])
def test_beside_fsdp(make, tmp_path):
    run_processes(check_mesh, 4, tmp_path, make)
