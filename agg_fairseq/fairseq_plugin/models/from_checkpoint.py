"""The model of a checkpoint, built by fairseq; and the tokens that it was trained on."""

from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, tasks, utils
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import OmegaConf
from torch import Tensor, nn

from ...checkpoints import Checkpoint
from ...data.binarized import load_dictionary, training_counts
from ...errors import UserError, first_line


def build_model(
    checkpoint: Checkpoint, data: str | Path, overrides: Mapping[str, Any] | None = None
) -> tuple[nn.Module, Any]:
    """Builds the model, of any architecture of fairseq or of this package, in evaluation mode, and
    its task, with the dictionary in `data` and other options by name."""
    for kind, options, known in (
        ("model", checkpoint.options("model"), ARCH_MODEL_REGISTRY.keys() | MODEL_REGISTRY.keys()),
        ("task", checkpoint.options("task"), tasks.TASK_REGISTRY.keys()),
    ):
        name = options.get("_name") or options.get("arch" if kind == "model" else "task")
        if name is not None and name not in known:
            raise UserError(
                f"{checkpoint}: found the {kind} {name} of a plug-in; import that in Python, and "
                "call the function of agg_fairseq.evaluation there"
            )
    state = dict(checkpoint.state)  # fairseq brings an older state up to date in place
    try:
        if state.get("cfg") is not None:
            state["cfg"] = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
        if state.get("args") is not None:
            # without how it was trained, which another program may have defined; and with options
            # that are newer, which fairseq would take for true
            unused = dict.fromkeys(("criterion", "optimizer", "lr_scheduler"))
            options = {"use_plasma_view": False, "tpu": False, **vars(state["args"]), **unused}
            state["args"] = Namespace(**options)
        # makes `cfg` of `args`
        state = checkpoint_utils._upgrade_state_dict(state)
        overrides = {"data": str(data), **(overrides or {}), **options_of_pruned(checkpoint)}
        overwrite_args_by_name(state["cfg"], overrides)
        task = tasks.setup_task(state["cfg"].task, from_checkpoint=True)
        model = task.build_model(state["cfg"].model, from_checkpoint=True)
        model.load_state_dict(dict(state["model"]), strict=True, model_cfg=state["cfg"].model)
        return model.eval(), task
    except Exception as error:  # fairseq raises whatever it likes, bare exceptions among them
        raise UserError(
            f"{checkpoint}: fairseq cannot build its model from it ({first_line(error)}); expected "
            "one of a registered architecture, and the data folder that it was trained with"
        ) from error


def dictionary_and_counts(
    checkpoints: Iterable[Checkpoint], data: str | Path, pair: tuple[str, str] | None
) -> tuple[Any, Tensor]:
    """The target dictionary, and `training_counts` (V,) of `data` with the options of models of a
    language pair, or of language models; UserError if these would train on different sentences."""
    counted: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        options = {**checkpoint.options("task"), "data": str(data), "seed": 1}
        positions = checkpoint.options("model").get("max_target_positions")
        longest = checkpoint.options("dataset").get("max_tokens")
        key = repr((options, positions, longest))
        if key in counted:
            continue
        if options.get("_name") not in tasks.TASK_DATACLASS_REGISTRY:  # extends this one, by name
            options["_name"] = "language_modeling"
        if pair is not None:
            options |= {"source_lang": pair[0], "target_lang": pair[1]}
        cfg = OmegaConf.structured(FairseqConfig)  # what the options refer to
        OmegaConf.set_struct(cfg, False)
        cfg.task = OmegaConf.create(options, flags={"allow_objects": True})
        try:
            task = tasks.setup_task(cfg.task, from_checkpoint=True)
        except Exception:  # a bare one for a dictionary that cannot be read
            for side in [f"dict.{language}.txt" for language in pair or ()] or ["dict.txt"]:
                load_dictionary(data, side)
            raise
        limit = task.max_positions() if pair else positions or task.args.tokens_per_sample
        positions = utils.resolve_max_positions(limit, longest)
        counted[key] = training_counts(task, "train", positions)
        first = next(iter(counted.values()))
        if not counted[key].equal(first):
            raise UserError(
                f"{checkpoint}: found {int(counted[key].sum()):,} training targets in {data}, and "
                f"{int(first.sum()):,} of the first model; measure them one at a time"
            )
    return task.target_dictionary, first


def model_name(checkpoint: Checkpoint) -> str | None:
    """The registered name of a checkpoint's model, such as transformer_lm."""
    options = checkpoint.options("model")
    architecture = options.get("_name") or options.get("arch")
    return ARCH_MODEL_NAME_REGISTRY.get(architecture, architecture)


def options_of_pruned(checkpoint: Checkpoint) -> dict[str, int | None]:
    """Options for a model that was saved pruned (--decoder-layers-to-keep), lest fairseq prune it
    once more."""
    options = {}
    for side in ("encoder", "decoder"):
        kept = checkpoint.options("model").get(f"{side}_layers_to_keep")
        names = [name for name in checkpoint.parameters if name.startswith(f"{side}.layers.")]
        layers = len({name.split(".")[2] for name in names})
        if kept and layers == len(kept.split(",")):
            options |= {f"{side}_layers_to_keep": None, f"{side}_layers": layers}
    return options
