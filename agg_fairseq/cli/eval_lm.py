"""Evaluates language models next to each other, by frequency group of the tokens.

For each checkpoint, over the targets (perplexity) or the arg-max predictions (Uniq) of each group: frequent, medium
and rare tokens, by their frequency in the binarised training split (see --groups).
`I(W)` is the isotropy of the output embedding (1 is isotropic), `S(W)` its mean cosine (0 is isotropic). The total
perplexity is that of fairseq-eval-lm with the same options.

    agg-fairseq eval-lm data-bin/wikitext-2 --path runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from .. import __version__
from ..corpus import load_dictionary
from ..errors import UserError, first_line
from ..metrics import FrequencyGroups, NextTokenStatistics, isotropy, mean_cosine
from ..metrics.groups import GROUPS
from .checkpoints import check_language_model, criterion_options, load_model, open_model
from .devices import find_device
from .embeddings import GROUPINGS, add_grouping, load_embeddings, load_vocabulary
from .measured import Measured, measure_and_show
from .naming import HUMAN, names_of
from .table import number

COLUMNS = (*GROUPS, "total")


@dataclass(frozen=True)
class Evaluation:
    """The numbers of one checkpoint, each by group and `total`."""

    path: str
    embedding: str
    """Name of the parameter that I(W) and S(W) are taken of; all its rows, special tokens included."""
    perplexity: dict[str, float | None]
    uniq: dict[str, int]
    isotropy: dict[str, float | None]
    mean_cosine: float
    tokens: int
    criterion: dict[str, Any]
    """What it was trained with: the options of the criterion, its name as `_name`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those that fairseq-eval-lm has too bear the same names."""
    parser.add_argument("data", help="folder written by fairseq-preprocess, with the training split")
    parser.add_argument("--path", nargs="+", required=True, metavar="CKPT", help="checkpoints, compared side by side")
    parser.add_argument("--name", nargs="+", metavar="NAME", help="a name per checkpoint (default: its folder)")
    parser.add_argument("--gen-subset", default="test", metavar="SPLIT", help="split to evaluate (default: test)")
    parser.add_argument(
        "--tokens-per-sample", type=int, metavar="T", help="length of a block (default: that of the training)"
    )
    parser.add_argument(
        "--sample-break-mode",
        choices=("none", "complete", "complete_doc", "eos"),
        default="none",
        help="how the split is cut into blocks (default: none, blocks of T tokens across lines)",
    )
    parser.add_argument(
        "--context-window", type=int, default=0, metavar="C", help="tokens of context before each block (default: 0)"
    )
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="tokens per batch (default: 2048, or T where that is more)"
    )
    add_grouping(parser)
    parser.add_argument("--json", metavar="FILE", help="also write all numbers to FILE")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, … (default: a GPU if there is one)")


def run(arguments: argparse.Namespace) -> None:
    """Evaluates every checkpoint, prints the table and writes the JSON file."""
    measure_and_show(measure, arguments, [*arguments.path, arguments.data])


def measure(arguments: argparse.Namespace) -> Measured:
    """Evaluates every checkpoint."""
    names = names_of(arguments.path, arguments.name)
    dictionary = load_dictionary(arguments.data)
    lengths = [check_language_model(path, arguments.data, len(dictionary)) for path in arguments.path]
    if arguments.tokens_per_sample is None and len(set(lengths)) > 1:
        raise UserError(
            f"found models trained on {', '.join(map(str, lengths))} tokens per block; give --tokens-per-sample, "
            "since perplexities over blocks of different lengths do not compare"
        )
    device = find_device(arguments.device)
    groups = load_vocabulary(arguments.path, arguments.data).groups(arguments.groups)
    evaluations = []
    for path, name in zip(arguments.path, names, strict=True):
        model, task = load_model(path, arguments.data, _overrides(arguments))
        statistics = _evaluate(model.to(device), task, groups, arguments, name)
        evaluations.append(_evaluation(path, statistics, groups))
    human = statistics.unique_targets()
    results = [{"name": name, **asdict(evaluation)} for name, evaluation in zip(names, evaluations, strict=True)]
    return Measured(
        header=_header(),
        rows=_rows(names, evaluations, human),
        signature=_signature(arguments, task, groups, evaluations[0]),
        values={"groups": groups.sizes(), "human_uniq": human, "checkpoints": results},
    )


def _overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    overrides: dict[str, Any] = {"sample_break_mode": arguments.sample_break_mode}
    if arguments.tokens_per_sample is not None:
        overrides["tokens_per_sample"] = arguments.tokens_per_sample
    return overrides


def _evaluate(
    model: nn.Module, task: Any, groups: FrequencyGroups, arguments: argparse.Namespace, name: str
) -> NextTokenStatistics:
    device = next(model.parameters()).device
    statistics = NextTokenStatistics(groups, len(task.target_dictionary))
    for sample in tqdm(_batches(model, task, arguments), desc=name, unit="batch", disable=None, leave=False):
        if "net_input" in sample:
            statistics.add(*_score(model, task, _to_device(sample, device)))
    return statistics


def _batches(model: nn.Module, task: Any, arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    split = arguments.gen_subset
    if not (Path(arguments.data) / f"{split}.bin").is_file():
        raise UserError(f"--gen-subset: found no split {split!r} in {arguments.data}; expected {split}.bin there")
    if arguments.sample_break_mode == "eos" and not hasattr(np, "compat"):
        raise UserError(f"--sample-break-mode eos: found numpy {np.__version__}; fairseq needs numpy<2 for it")
    _check_lengths(model, task, arguments)
    task.args.tokens_per_sample -= arguments.context_window
    try:
        task.load_dataset(split)
    except (ValueError, RuntimeError, AssertionError, OSError) as error:
        raise UserError(
            f"{arguments.data}/{split}: unreadable ({first_line(error)}); run fairseq-preprocess again"
        ) from error
    return task.eval_lm_dataloader(
        dataset=task.dataset(split),
        max_tokens=arguments.max_tokens or max(2048, task.args.tokens_per_sample + arguments.context_window),
        max_positions=model.max_positions(),
        num_workers=0,
        context_window=arguments.context_window,
    )


def _check_lengths(model: nn.Module, task: Any, arguments: argparse.Namespace) -> None:
    length = task.args.tokens_per_sample
    if not 1 <= length <= model.max_positions():
        raise UserError(
            f"--tokens-per-sample: expected 1 to {model.max_positions()} (the model's positions), got {length}"
        )
    if not 0 <= arguments.context_window < length:
        raise UserError(
            f"--context-window: expected 0 to {length - 1} (below --tokens-per-sample), got {arguments.context_window}"
        )
    if arguments.max_tokens is not None and arguments.max_tokens < length:
        raise UserError(f"--max-tokens: expected at least {length} (--tokens-per-sample), got {arguments.max_tokens}")


@torch.no_grad()
def _score(model: nn.Module, task: Any, sample: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """NLL in nats, target and arg-max prediction of each position that fairseq-eval-lm counts."""
    net_output = model(**sample["net_input"])
    target = sample["target"]  # B x T
    kept = target != task.target_dictionary.pad()
    if getattr(task.args, "add_bos_token", False):
        kept &= target != task.target_dictionary.bos()
    log_probs = model.get_normalized_probs(net_output, log_probs=True)[kept]  # N x V
    target = target[kept]  # N
    nll = -log_probs.gather(1, target[:, None]).squeeze(1)
    return nll, target, log_probs.argmax(1)


def _to_device(sample: dict[str, Any], device: torch.device) -> dict[str, Any]:
    from fairseq import utils

    return sample if device.type == "cpu" else utils.move_to_cuda(sample, device=device)


def _evaluation(path: str, statistics: NextTokenStatistics, groups: FrequencyGroups) -> Evaluation:
    embeddings = load_embeddings(path)
    weight = embeddings.weight
    members = {group: groups.members(group) for group in GROUPS}
    by_group = {group: isotropy(weight[tokens]) if len(tokens) else None for group, tokens in members.items()}
    return Evaluation(
        path=str(path),
        embedding=embeddings.parameter,
        perplexity=statistics.perplexity(),
        uniq=statistics.unique_predictions(),
        isotropy=by_group | {"total": isotropy(weight)},
        mean_cosine=mean_cosine(weight),
        tokens=statistics.tokens,
        criterion=criterion_options(open_model(path)),
    )


def _header() -> list[str]:
    return [
        "",
        *(f"PPL {c}" for c in COLUMNS),
        *(f"Uniq {c}" for c in COLUMNS),
        *(f"I(W) {c}" for c in COLUMNS),
        "S(W)",
    ]


def _rows(names: list[str], evaluations: list[Evaluation], human: dict[str, int]) -> list[list[str | None]]:
    rows: list[list[str | None]] = []
    for name, evaluation in zip(names, evaluations, strict=True):
        row: list[str | None] = [name]
        row += [number(evaluation.perplexity[c], 2) for c in COLUMNS]
        row += [number(evaluation.uniq[c], 0) for c in COLUMNS]
        row += [number(evaluation.isotropy[c], 3) for c in COLUMNS]
        rows.append([*row, number(evaluation.mean_cosine, 3)])
    return [*rows, [HUMAN, *[None] * 4, *(number(human[c], 0) for c in COLUMNS), *[None] * 5]]


def _signature(arguments: argparse.Namespace, task: Any, groups: FrequencyGroups, first: Evaluation) -> str:
    """Every choice that moves a number."""
    return "|".join(
        [
            f"split:{arguments.gen_subset}",
            f"targets:{first.tokens}",
            f"tokens-per-sample:{task.args.tokens_per_sample + arguments.context_window}",
            f"break:{arguments.sample_break_mode}",
            f"context:{arguments.context_window}",
            f"groups:{GROUPINGS[arguments.groups]}",
            f"isotropy:eigenvectors-of-WtW,all-rows,{first.embedding}",
            f"version:{__version__}",
        ]
    )
