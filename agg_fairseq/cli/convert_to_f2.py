"""Makes a model with the factorised output layer of one that was trained with the ordinary softmax.

The tokens' embeddings stay, so that inside each frequency class the new model predicts what the old one did. The
classes' embeddings are fitted on text of the training split, such that the joint distribution starts as close to the
softmax as it can (in KL divergence, a convex problem). The table shows how close, on the validation split: `mean` is
the start of the fit, the mean of each class's tokens. Go on training from the result with

    agg-fairseq convert-to-f2 --path runs/mle/checkpoint_best.pt --data data-bin/wikitext-2 --output f2.pt
    fairseq-train data-bin/wikitext-2 --user-dir "$(agg-fairseq user-dir)" --finetune-from-model f2.pt \\
      --arch transformer_lm_f2 --criterion f2_softmax …  (with the sizes and the tying of the old model)
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from .. import __version__
from ..data.binarized import target_splits
from ..errors import UserError, first_line
from ..files import check_distinct, check_writable, write_json, write_whole
from ..functional import TokenClasses
from ..functional.chunks import CHUNK_ELEMENTS
from ..functional.class_embeddings import (
    class_log_mass,
    fit_class_embeddings,
    kl_to_classes,
    log_mass_of_logits,
    mean_class_embeddings,
)
from ..functional.factorized_softmax import class_log_prob
from ..functional.frequency_classes import ASSIGNMENTS, assign_classes
from .checkpoints import check_finite, load_model, model_options, open_model, options_of_model
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
    if arguments.positions < 1 or arguments.max_tokens < 1:
        raise UserError("--positions, --max-tokens: expected at least 1")
    check_distinct(path=arguments.path, output=arguments.output, json=arguments.json)
    state = open_model(arguments.path)
    parent = _parent(state, arguments.path)
    device = find_device(arguments.device)
    model, task = load_model(arguments.path, arguments.data)
    model.to(device)
    counts, classes = _classes(arguments, task)
    target_splits(task, "valid")
    for path in filter(None, (arguments.output, arguments.json)):
        check_writable(path)
    weight = model.decoder.output_projection.weight.detach()
    check_finite(arguments.path, {"the output embedding": weight})
    classes = TokenClasses.of(classes.to(device))
    features = _features(model, task, "train", arguments.positions, arguments.max_tokens)
    start = mean_class_embeddings(weight, counts.to(device), classes)
    fitted = fit_class_embeddings(features, class_log_mass(features, weight, classes), start)
    used = len(features)
    del features
    result = _measure(model, task, weight, classes, {"mean": start, "fitted": fitted}, arguments)
    print(format_table(["class embeddings", "KL (nats)", "PPL"], _rows(result)))
    signature = (
        f"classes:{classes.number}|assignment:{arguments.f2_assignment}|fitted-on:train,{used}|"
        f"measured-on:valid,{result['positions']}|version:{__version__}"
    )
    print(f"\n{signature}")
    converted = _converted(state, parent, classes, weight, fitted, arguments)
    write_whole(arguments.output, lambda temporary: torch.save(converted, temporary))
    if arguments.json:
        write_json(arguments.json, {"signature": signature, "sizes": list(classes.sizes), **result})


def _parent(state: dict[str, Any], path: str) -> str:
    """The model of a checkpoint, one that has a sibling with the factorised layer."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    options = options_of_model(path, state)
    name = options.get("_name") or options.get("arch") or "?"
    parent = ARCH_MODEL_NAME_REGISTRY.get(name, name)
    if parent not in FACTORIZED:
        raise UserError(
            f"{path}: found a model {name}; expected transformer_lm or transformer with the ordinary softmax, of which "
            "transformer_lm_f2 and transformer_f2 are the siblings"
        )
    if options.get("adaptive_softmax_cutoff") is not None:
        raise UserError(f"{path}: found an adaptive softmax; expected the ordinary one, whose embeddings can be kept")
    return parent


def _classes(arguments: argparse.Namespace, task: Any) -> tuple[Tensor, Tensor]:
    """Training counts (V,) and the class of each token (V,)."""
    from ..data.training_counts import training_counts

    counts = training_counts(task, "train", None)
    try:
        return counts, assign_classes(arguments.f2_assignment, arguments.f2_classes, counts)
    except ValueError as error:
        raise UserError(str(error)) from error


@torch.no_grad()
def _features(model: nn.Module, task: Any, split: str, positions: int, max_tokens: int) -> Tensor:
    """(N, D) features in front of the targets of a split, N at most `positions`; spread over it."""
    found = [features for features, _ in _batches(model, task, split, positions, max_tokens)]
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
        batches = task.get_batch_iterator(
            task.dataset(split),
            max_tokens=max_tokens,
            max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
            ignore_invalid_inputs=True,
            seed=1,
        )
        return batches.next_epoch_itr(shuffle=True)
    except (ValueError, RuntimeError, AssertionError, OSError) as error:
        raise UserError(
            f"--data, the split {split}: fairseq cannot make batches of it ({first_line(error)}); run "
            "fairseq-preprocess again, or raise --max-tokens"
        ) from error


@torch.no_grad()
def _measure(
    model: nn.Module,
    task: Any,
    weight: Tensor,
    classes: TokenClasses,
    candidates: dict[str, Tensor],
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """On the validation split: KL(P ‖ p) in nats and the NLL per position, of the softmax and of each candidate U."""
    sums = torch.zeros(1 + len(candidates), 2, dtype=torch.float64)  # KL and NLL
    total, rows = 0, max(1, CHUNK_ELEMENTS // classes.vocabulary)
    for features, target in _batches(model, task, "valid", arguments.positions, arguments.max_tokens):
        for chunk in zip(features.split(rows), target.split(rows), strict=True):
            sums += _sums(*chunk, weight, classes, list(candidates.values()))
        total += len(target)
    named = zip(("softmax", *candidates), (sums / total).tolist(), strict=True)
    return {"positions": total, "valid": {name: {"kl": kl, "nll": nll} for name, (kl, nll) in named}}


def _sums(features: Tensor, target: Tensor, weight: Tensor, classes: TokenClasses, candidates: list[Tensor]) -> Tensor:
    """KL and NLL over some positions (n,): (1 + candidates, 2), of the softmax first."""
    logits = (features @ weight.t()).float()  # n x V
    log_mass = log_mass_of_logits(logits, classes)  # n x C
    nll = nn.functional.cross_entropy(logits, target, reduction="none")  # n
    number = classes.of_token[target][:, None]  # n x 1
    found = [[0.0, nll.sum().item()]]
    for class_weight in candidates:
        log_p1 = class_log_prob(features, class_weight)
        moved = (log_mass - log_p1).gather(1, number).squeeze(1)  # n, in the probability of the target's class
        divergence = kl_to_classes(features, class_weight, log_mass) * len(target)
        found.append([divergence.item(), (nll + moved).sum().item()])
    return torch.tensor(found, dtype=torch.float64)


def _rows(result: dict[str, Any]) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, values in result["valid"].items():
        perplexity = torch.tensor(values["nll"]).exp().item()
        label = "none: the ordinary softmax" if name == "softmax" else name
        rows.append([label, number(values["kl"], 4), number(perplexity, 2)])
    return rows


def _converted(
    state: dict[str, Any],
    parent: str,
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
        f"{layer}.class_of_token": classes.of_token.cpu().float(),  # as the module saves them
    }
    converted["cfg"], converted["args"] = copy.deepcopy(state.get("cfg")), copy.deepcopy(state.get("args"))
    _set_options(converted, parent, arguments)
    return converted


def _set_options(state: dict[str, Any], parent: str, arguments: argparse.Namespace) -> None:
    """The sibling's name for the model, and the criterion that such a model can be trained and validated with."""
    options = model_options(state)
    for key in ("_name", "arch"):
        if options.get(key):
            options[key] = FACTORIZED[parent] + options[key].removeprefix(parent)
    options |= {"f2_assignment": arguments.f2_assignment, "f2_classes": arguments.f2_classes, "f2_decoding": "joint"}
    if not state.get("cfg"):
        options["criterion"] = "f2_softmax"
        return
    criterion = state["cfg"].get("criterion") or {}
    criterion = criterion if isinstance(criterion, dict) else vars(criterion)
    smoothing = criterion.get("label_smoothing", 0.0)
    state["cfg"]["criterion"] = {"_name": "f2_softmax", "label_smoothing": smoothing}
