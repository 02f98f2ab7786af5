"""Makes a model with the factorised output layer of one that was trained with the ordinary softmax.

The tokens' embeddings stay, so that inside each frequency class the new model predicts what the old one did. The
classes' embeddings are fitted on text of the training split, such that the joint distribution starts as close to the
softmax as it can (in KL divergence, a convex problem). The table shows how close, on the validation split: `mean` is
the start of the fit, the mean of each class's tokens. Go on training from the result with

    agg-fairseq convert-to-f2 --path runs/mle/checkpoint_best.pt --data data-bin/wikitext-2 --output f2.pt
    fairseq-train data-bin/wikitext-2 --arch transformer_lm_f2 --criterion f2_softmax --finetune-from-model f2.pt …
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from .. import __version__
from ..errors import UserError, first_line
from ..files import check_writable, write_json, write_whole
from ..functional import TokenClasses
from ..functional.class_embeddings import (
    class_log_mass,
    fit_class_embeddings,
    kl_to_classes,
    mean_class_embeddings,
)
from ..functional.frequency_classes import ASSIGNMENTS, assign_classes
from .checkpoints import load_model, open_checkpoint
from .devices import find_device
from .table import format_table, number

FACTORIZED = {"transformer_lm": "transformer_lm_f2", "transformer": "transformer_f2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those of the models with the factorised layer bear the same names."""
    parser.add_argument("--path", required=True, metavar="CKPT", help="a transformer or transformer_lm checkpoint")
    parser.add_argument("--data", required=True, help="folder written by fairseq-preprocess, with the training split")
    parser.add_argument("--output", required=True, metavar="F2", help="checkpoint to write")
    parser.add_argument(
        "--f2-assignment",
        choices=ASSIGNMENTS,
        default="mefmax",
        help="how tokens are assigned to frequency classes (default: mefmax, which finds their number)",
    )
    parser.add_argument("--f2-classes", type=int, default=0, metavar="C", help="number of classes for the others")
    parser.add_argument(
        "--positions", type=int, default=50_000, metavar="N", help="target positions to fit on (default: 50,000)"
    )
    parser.add_argument("--max-tokens", type=int, default=4096, metavar="N", help="tokens per batch (default: 4096)")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, … (default: a GPU if there is one)")


def run(arguments: argparse.Namespace) -> None:
    """Fits, prints the table and writes the checkpoint, then the JSON file."""
    state = open_checkpoint(arguments.path)
    name = _model_name(state, arguments.path)
    if arguments.positions < 1 or arguments.max_tokens < 1:
        raise UserError("--positions, --max-tokens: expected at least 1")
    for path in filter(None, (arguments.output, arguments.json)):
        check_writable(path)
    device = find_device(arguments.device)
    model, task = load_model(arguments.path, arguments.data)
    model.to(device)
    counts, classes = _classes(arguments, task)
    weight = _weight(model, arguments.path)
    classes = TokenClasses.of(classes.to(device))
    features = _features(model, task, "train", arguments.positions, arguments.max_tokens)
    start = mean_class_embeddings(weight, counts.to(device), classes)
    fitted = fit_class_embeddings(features, class_log_mass(features, weight, classes), start)
    del features
    result = _measure(model, task, weight, classes, {"mean": start, "fitted": fitted.class_weight}, arguments)
    print(format_table(["class embeddings", "KL (nats)", "PPL"], _rows(result)))
    signature = (
        f"classes:{classes.number}|assignment:{arguments.f2_assignment}|fitted-on:train,{arguments.positions}|"
        f"measured-on:valid,{result['positions']}|version:{__version__}"
    )
    print(f"\n{signature}")
    converted = _converted(state, name, classes, weight, fitted.class_weight, arguments)
    write_whole(arguments.output, lambda temporary: torch.save(converted, temporary))
    if arguments.json:
        write_json(arguments.json, {"signature": signature, "sizes": list(classes.sizes), **result})


def _model_name(state: dict[str, Any], path: str) -> str:
    """The name of the model in a checkpoint, one that has a sibling with the factorised layer."""
    name = _options(state).get("_name") or _options(state).get("arch") or "?"
    base = next((parent for parent in FACTORIZED if name == parent or name.startswith(f"{parent}_")), None)
    if base is None or "f2_decoding" in _options(state):
        raise UserError(
            f"{path}: found a model {name}; expected transformer_lm or transformer with the ordinary softmax, of which "
            "transformer_lm_f2 and transformer_f2 are the siblings"
        )
    if _options(state).get("adaptive_softmax_cutoff") is not None:
        raise UserError(f"{path}: found an adaptive softmax; expected the ordinary one, whose embeddings can be kept")
    return name


def _options(state: dict[str, Any]) -> dict[str, Any]:
    options = state["cfg"]["model"] if state.get("cfg") else state["args"]
    return options if isinstance(options, dict) else vars(options)


def _classes(arguments: argparse.Namespace, task: Any) -> tuple[Tensor, Tensor]:
    """Training counts (V,) and the class of each token (V,)."""
    from ..training_counts import training_counts

    counts = training_counts(task, "train", None)
    try:
        return counts, assign_classes(arguments.f2_assignment, arguments.f2_classes, counts)
    except ValueError as error:
        raise UserError(str(error)) from error


def _weight(model: nn.Module, path: str) -> Tensor:
    weight = model.decoder.output_projection.weight.detach()
    if not weight.isfinite().all():
        raise UserError(f"{path}: found an infinity or NaN: a diverged run; take an earlier checkpoint")
    return weight


@torch.no_grad()
def _features(model: nn.Module, task: Any, split: str, positions: int, max_tokens: int) -> Tensor:
    """(N, D) features in front of the targets of a split, N at most `positions`; spread over it."""
    found, total = [], 0
    for features, _ in _batches(model, task, split, positions, max_tokens):
        found.append(features)
        total += len(features)
    return torch.cat(found)[:positions]


def _batches(model: nn.Module, task: Any, split: str, positions: int, max_tokens: int) -> Any:
    """Features (n, D) and targets (n,) of shuffled batches, until there are `positions`."""
    from fairseq import utils

    from ..criterions.output_layer import features_of

    device, pad = next(model.parameters()).device, task.target_dictionary.pad()
    width, seen = model.decoder.output_projection.weight.size(1), 0
    with tqdm(total=positions, desc=f"reading {split}", unit="position", disable=None, leave=False) as bar:
        for sample in _iterator(model, task, split, max_tokens):
            sample = utils.move_to_cuda(sample, device=device) if device.type == "cuda" else sample
            features = features_of(model, sample["net_input"], width)[0]
            kept = sample["target"] != pad
            yield features[kept], sample["target"][kept]
            seen += int(kept.sum())
            bar.update(int(kept.sum()))
            if seen >= positions:
                return


def _iterator(model: nn.Module, task: Any, split: str, max_tokens: int) -> Any:
    from fairseq import utils

    try:
        task.load_dataset(split)
    except (ValueError, RuntimeError, AssertionError, OSError) as error:
        raise UserError(f"{split}: unreadable ({first_line(error)}); run fairseq-preprocess again") from error
    batches = task.get_batch_iterator(
        task.dataset(split),
        max_tokens=max_tokens,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
        ignore_invalid_inputs=True,
        seed=1,
    )
    return batches.next_epoch_itr(shuffle=True)


@torch.no_grad()
def _measure(
    model: nn.Module,
    task: Any,
    weight: Tensor,
    classes: TokenClasses,
    candidates: dict[str, Tensor],
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """On the validation split: KL(P ‖ p) in nats and the perplexity, of the softmax and of each candidate U."""
    sums: dict[str, list[float]] = {name: [0.0, 0.0] for name in ("softmax", *candidates)}
    total = 0
    for features, target in _batches(model, task, "valid", arguments.positions, arguments.max_tokens):
        log_mass = class_log_mass(features, weight, classes)  # n x C
        nll = nn.functional.cross_entropy((features @ weight.t()).float(), target, reduction="none")  # n
        of_target = log_mass.gather(1, classes.of_token[target][:, None]).squeeze(1)
        sums["softmax"][1] += nll.sum().item()
        for name, class_weight in candidates.items():
            log_p1 = torch.log_softmax((features @ class_weight.t()).float(), 1)
            moved = of_target - log_p1.gather(1, classes.of_token[target][:, None]).squeeze(1)
            sums[name][0] += kl_to_classes(features, class_weight, log_mass).item() * len(target)
            sums[name][1] += (nll + moved).sum().item()
        total += len(target)
    values = {name: {"kl": kl / total, "nll": nll / total} for name, (kl, nll) in sums.items()}
    return {"positions": total, "valid": values}


def _rows(result: dict[str, Any]) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, values in result["valid"].items():
        perplexity = torch.tensor(values["nll"]).exp().item()
        label = "none: the ordinary softmax" if name == "softmax" else name
        rows.append([label, number(values["kl"], 4), number(perplexity, 2)])
    return rows


def _converted(
    state: dict[str, Any],
    name: str,
    classes: TokenClasses,
    weight: Tensor,
    class_weight: Tensor,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """The checkpoint of the new model; the optimiser's state, which is of other parameters, is left out."""
    converted = {**state, "last_optimizer_state": None}
    layer = "decoder.output_projection"
    saved = state["model"].get(f"{layer}.weight", weight)
    converted["model"] = {
        **state["model"],
        f"{layer}.weight": saved,
        f"{layer}.class_weight": class_weight.cpu().to(saved.dtype),
        f"{layer}.class_of_token": classes.of_token.cpu(),
    }
    converted["cfg"], converted["args"] = copy.deepcopy(state.get("cfg")), copy.deepcopy(state.get("args"))
    _set_options(converted, name, arguments)
    return converted


def _set_options(state: dict[str, Any], name: str, arguments: argparse.Namespace) -> None:
    parent = next(parent for parent in FACTORIZED if name == parent or name.startswith(f"{parent}_"))
    options = _options(state)
    for key in ("_name", "arch"):
        if str(options.get(key) or "").startswith(parent):
            options[key] = FACTORIZED[parent] + options[key].removeprefix(parent)
    options |= {
        "f2_assignment": arguments.f2_assignment,
        "f2_classes": arguments.f2_classes,
        "f2_decoding": "joint",
        "train_subset": options.get("train_subset", "train"),
    }
