"""The parameters after six updates with `GatedHead`: of one process, and for several ways to share
the work, some resumed in their middle."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from agg_fairseq.errors import UserError
from agg_fairseq.functional.gated_linear import whole
from agg_fairseq.gating import AgpsGating
from tests.small_transformers import VOCABULARY, batch, dataset, gated_head, gpt2, trainer, untied

UPDATES, ROWS = 6, 4


def rank_and_workers():
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def fsdp(model):
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))


def sharded(model):
    """FSDP2; an output layer that is not tied is a unit of its own, as its blocks are."""
    from torch.distributed.fsdp import fully_shard

    if hasattr(model, "transformer"):
        model.gradient_checkpointing_enable()
        units = list(model.transformer.h)
    else:
        units = [*model.model.layers, model.lm_head]
    for unit in [*units, model]:
        fully_shard(unit, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


MODELS = {"tied": lambda: gpt2(n_layer=2), "untied": untied, "agps": lambda: gpt2(n_layer=2)}
AGPS = {
    "rule": AgpsGating, "counts": torch.arange(VOCABULARY).flip(0), "rare_rank": 20, "mu1": 60, "mu2": 8,
}  # fmt: skip
PAIRS = [
    ("agps", DistributedDataParallel), ("tied", fsdp), ("untied", fsdp), ("tied", sharded),
    ("untied", sharded),
]  # fmt: skip


def train(kind, wrap, updates=range(UPDATES), state=None):
    """The parameters, whole, and the counts after some updates from a state of the same kind."""
    model, (rank, workers) = MODELS[kind]().double(), rank_and_workers()
    gated = gated_head(model, **(AGPS if kind == "agps" else {}))
    if state is not None:
        model.load_state_dict(state["weights"])
        gated.load_state_dict(state["counts"])
    wrapped = wrap(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.5)
    # AGPS asks what is in a micro-batch: those of one worker are as those of two workers
    parts = 2 if kind == "agps" and workers == 1 else 1
    for update in updates:
        rows = {name: tensor[rank::workers] for name, tensor in batch(ROWS, seed=update).items()}
        for part in range(parts):
            given = {name: tensor[part::parts] for name, tensor in rows.items()}
            (wrapped(**given).loss / parts).backward()
        optimizer.step()
        optimizer.zero_grad()
        gated.commit_update()
    if wrap is fsdp:
        with type(wrapped).summon_full_params(wrapped):
            weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    else:
        weights = whole_weights(model)
    return {"weights": weights, "counts": gated.state_dict()}


def whole_weights(model):
    return {name: whole(one).detach() for name, one in model.state_dict().items()}


def listen_to_fsdp():
    """accelerate leaves `fsdp=True` out on a CPU; afterwards, it does not."""
    from accelerate.state import AcceleratorState, DistributedType

    before = AcceleratorState.__init__

    def init(self, *arguments, fsdp_plugin=None, **options):
        before(self, *arguments, fsdp_plugin=fsdp_plugin, **options)
        self.fsdp_plugin = fsdp_plugin or getattr(self, "fsdp_plugin", None)
        if self.fsdp_plugin is not None:
            self.distributed_type = DistributedType.FSDP

    AcceleratorState.__init__ = init


def train_by_trainer(folder, resume=None, is_sharded=False):
    """As `train`, by Trainer; for two workers, half of the examples in a batch."""
    model, (_, workers) = untied(), rank_and_workers()
    gated = gated_head(model)
    config = {"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}
    more = {"ddp_backend": "gloo"} if workers > 1 else {}
    if is_sharded:
        listen_to_fsdp()
        more |= {"fsdp": True, "fsdp_config": config, "save_strategy": "no"}
    training = trainer(
        model, folder, gated, dataset(ROWS * UPDATES), per_device_train_batch_size=ROWS // workers, learning_rate=0.1,
        gradient_accumulation_steps=2, optim="sgd", num_train_epochs=2, save_steps=UPDATES // 2,
        **{"save_strategy": "steps", **more},
    )  # fmt: skip
    training.train(resume_from_checkpoint=resume)
    assert (
        training.accelerator.is_fsdp2 == hasattr(model.lm_head.weight, "full_tensor") == is_sharded
    )
    return {"weights": whole_weights(model), "counts": gated.state_dict()}


def parallel_in_tensors(is_told):
    """Trains a model of which each worker has a part of the blocks, and the same batch."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = dist.init_device_mesh("cpu", (1, dist.get_world_size()), mesh_dim_names=("dp", "tp"))
    model = untied()
    plan = {"model.layers.0.mlp.gate_proj": ColwiseParallel(output_layouts=Replicate())}
    plan["model.layers.0.mlp.up_proj"] = ColwiseParallel(output_layouts=Replicate())
    parallelize_module(model, mesh["tp"], plan)
    group = mesh["dp"].get_group() if is_told else None
    gated, given = gated_head(model, process_group=group), batch(ROWS)
    model(**given).loss.backward()
    gated.commit_update()
    return gated.gating.counter.appearances.sum() == given["labels"][:, 1:].numel()


def train_alone(folder):
    """Results by kind."""
    results = {kind: train(kind, lambda model: model) for kind in MODELS}
    results["compiled"] = train("tied", lambda model: torch.compile(model, backend="aot_eager"))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"], "nothing was compiled"
    return results | {"Trainer": train_by_trainer(folder / "alone")}


def train_together(folder):
    """Saves pairs of kind and result."""
    results = [(kind, train(kind, way)) for kind, way in PAIRS]
    half = train("untied", sharded, range(UPDATES // 2))
    results.append(("untied", train("untied", sharded, range(UPDATES // 2, UPDATES), half)))
    for checkpoint in (None, f"{folder}/run/checkpoint-{UPDATES // 2}"):
        results.append(("Trainer", train_by_trainer(f"{folder}/run", checkpoint)))
    results.append(("Trainer", train_by_trainer(folder, is_sharded=True)))
    assert parallel_in_tensors(is_told=True)
    with pytest.raises(UserError, match="expected process_group of the rule, the workers with bat"):
        parallel_in_tensors(is_told=False)
    if dist.get_rank() == 0:
        torch.save(results, folder / "together.pt")
