"""Perplexity, distinct predictions, calibration and isotropy of language models, by frequency group of the tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from .. import __version__
from ..awd_lstm.continuous_cache import CacheOptions, ContinuousCache
from ..checkpoints.fairseq_checkpoint import STREAMS, Checkpoint
from ..data.vocabulary import GROUPINGS
from ..errors import UserError, first_line
from ..functional.loss_core import CHUNK_ELEMENTS
from ..metrics import NextTokenStatistics
from ..metrics.groups import GROUPS
from ..names import HUMAN
from ..result import Column, Result
from .inputs import check_language_models, check_split, find_device, load_vocabulary, matrix_signature
from .isotropy import geometry_by_group

BREAK_MODES = ("none", "complete", "complete_doc", "eos")
"""How fairseq cuts a split into blocks."""
COLUMNS = (*GROUPS, "total")
TOTALS = {
    "S(W)": "mean_cosine", "I(W−μ)": "isotropy_centered", "mean share": "mean_share", "IsoScore": "isoscore",
}  # fmt: skip
"""Columns of the whole embedding, and the fields of `metrics.Geometry` that they show."""


def perplexity(
    checkpoints: Mapping[str, Checkpoint],
    data: str | Path,
    *,
    split: str = "test",
    tokens_per_sample: int | None = None,
    sample_break_mode: str = "none",
    context_window: int = 0,
    max_tokens: int | None = None,
    groups: str = "types",
    cache: CacheOptions | None = None,
    device: str | None = None,
) -> Result:
    """Scores a split with each model, over the targets (perplexity) or the arg-max predictions (Uniq) of each group.

    E/O rare, expected over observed, is the sum of the probabilities that rare tokens get at all positions, divided by
    the number of rare targets: 1 is calibrated, and 2 means that the model expects rare tokens twice too often.
    The total perplexity is that of fairseq-eval-lm with the same options. I(W) is the isotropy of the output embedding
    (1 is isotropic) and S(W) its mean cosine (0 is isotropic), over all rows, those of special tokens included; I(W−μ),
    the mean share and IsoScore are as of `isotropy`.

    Args:
        checkpoints: language models, by the names of their rows.
        data: folder written by `fairseq-preprocess`, with the training split, from which the frequencies are counted.
        split: the split to score.
        tokens_per_sample: tokens per block, its context included; None: as in training.
        sample_break_mode: how the split is cut into blocks, one of `BREAK_MODES`; "none": across lines.
        context_window: tokens of context before each block, which are not scored.
        max_tokens: tokens per batch; None: 2048, or a block where that is longer.
        groups: frequent, medium and rare tokens by one of `data.vocabulary.GROUPINGS`.
        cache: options of a continuous cache, with which the text is read block by block in its order; None: none.
        device: "cpu", "cuda", …; None: a GPU if there is one.

    A model that was trained with `--task language_modeling_streams` reads the whole split as one text, in blocks, and
    carries its state from block to block.

    Returns:
        Result: a row per model, and the row `human` with the distinct targets. Details: `groups`, their sizes;
        `human_uniq`; and `checkpoints`, for each `name`, `path`, `embedding`, `perplexity`, `uniq`,
        `expected_over_observed` and `isotropy` by group, `geometry` as of `geometry_by_group`, `mean_cosine`, `tokens`
        (targets scored) and `criterion` (the options that it was trained with).

    Raises:
        UserError: a checkpoint is no language model over the dictionary of `data`; the models were trained on blocks of
            different lengths and no length is given; an option is out of its range; a checkpoint is named `human`; the
            data is damaged.

    Reference: Yu et al. (2022), Tables 1–3.

    Example:
        >>> runs = open_checkpoints(["runs/mle/checkpoint_best.pt", "runs/agg/checkpoint_best.pt"])  # doctest: +SKIP
        >>> print(perplexity(runs, "data-bin/wikitext-2").table())  # doctest: +SKIP
    """
    if HUMAN in checkpoints:
        raise UserError(f"--name: found {HUMAN!r}, the row of the targets; give the checkpoint another name")
    lengths = check_language_models(checkpoints, data)
    if tokens_per_sample is None and len(set(lengths)) > 1:
        raise UserError(
            f"found models trained on {', '.join(map(str, lengths))} tokens per block; give --tokens-per-sample, "
            "since perplexities over blocks of different lengths do not compare"
        )
    for checkpoint in checkpoints.values():  # before the first model is scored
        if not checkpoint.output_embedding.saved.any():
            raise UserError(
                f"{checkpoint}: found only zeros in {checkpoint.output_embedding.name}; expected a trained model"
            )
    carrying = [name for name, checkpoint in checkpoints.items() if checkpoint.task_options["_name"] == STREAMS]
    if carrying and context_window:
        raise UserError(
            f"--context-window: found {context_window} with {carrying[0]}, which carries its state from block to "
            "block; expected 0"
        )
    try:
        caches = {name: cache and ContinuousCache(CacheOptions(*cache)) for name in checkpoints}
    except ValueError as error:
        raise UserError(str(error)) from error
    blocks = _Blocks(
        data=data,
        split=split,
        length=lengths[0] if tokens_per_sample is None else tokens_per_sample,
        break_mode=sample_break_mode,
        context=context_window,
        max_tokens=max_tokens,
    )
    place = find_device(device)
    members = load_vocabulary(checkpoints, data).groups(groups)

    evaluated, rows, human = [], {}, {}
    for name, checkpoint in checkpoints.items():
        statistics = NextTokenStatistics(members, len(members.of_token))
        _score_split(checkpoint, blocks, place, caches[name], statistics, name)
        by_group = {group: members.members(group) for group in GROUPS}
        geometry = geometry_by_group(checkpoint.output_embedding.weight, by_group)
        found: dict[str, Any] = {
            "path": str(checkpoint),
            "embedding": checkpoint.output_embedding.description,
            "perplexity": statistics.perplexity(),
            "uniq": statistics.unique_predictions(),
            "expected_over_observed": statistics.expected_over_observed(),
            "geometry": geometry,
            "isotropy": {column: geometry[column]["isotropy"] for column in COLUMNS},
            "mean_cosine": geometry["total"]["mean_cosine"],
            "tokens": statistics.tokens,
            "criterion": checkpoint.criterion_options,
        }
        human = statistics.unique_targets()
        evaluated.append({"name": name, **found})
        measures = [found[measure][column] for measure in ("perplexity", "uniq", "isotropy") for column in COLUMNS]
        calibration = found["expected_over_observed"]["rare"]
        rows[name] = [*measures, *(geometry["total"][measure] for measure in TOTALS.values()), calibration]
    rows[HUMAN] = [*[None] * 4, *(human[column] for column in COLUMNS), *[None] * (4 + len(TOTALS) + 1)]
    return Result(
        columns=[
            *(Column(f"PPL {column}") for column in COLUMNS),
            *(Column(f"Uniq {column}", "tokens", 0) for column in COLUMNS),
            *(Column(f"I(W) {column}", digits=3) for column in COLUMNS),
            *(Column(title, digits=3) for title in TOTALS),
            Column("E/O rare"),
        ],
        rows=rows,
        signature="|".join(
            [
                f"split:{split}",
                f"targets:{evaluated[0]['tokens']}",
                f"tokens-per-sample:{blocks.length}",
                f"break:{sample_break_mode}",
                f"context:{context_window}",
                *([f"state:carried({','.join(carrying)})"] if carrying else []),
                *([f"cache:{cache[0]},theta={cache[1]:g},lambda={cache[2]:g}"] if cache is not None else []),
                f"groups:{GROUPINGS[groups]}",
                f"isotropy:eigenvectors-of-WtW,all-rows,{matrix_signature(checkpoints)}",
                f"version:{__version__}",
            ]
        ),
        details={"groups": members.sizes(), "human_uniq": human, "checkpoints": evaluated},
    )


@dataclass(frozen=True)
class _Blocks:
    """A split, and how it is cut into blocks and batches; the fields are the options of `perplexity`."""

    data: str | Path
    split: str
    length: int
    break_mode: str
    context: int
    max_tokens: int | None

    def check(self, positions: int) -> None:
        """Refuses lengths that do not go together, or exceed the positions of a model."""
        if not 1 <= self.length <= positions:
            raise UserError(
                f"--tokens-per-sample: expected 1 to {positions} (the model's positions), got {self.length}"
            )
        if not 0 <= self.context < self.length:
            raise UserError(
                f"--context-window: expected 0 to {self.length - 1} (below --tokens-per-sample), got {self.context}"
            )
        if self.max_tokens is not None and not self.length <= self.max_tokens < 2**31:
            raise UserError(
                f"--max-tokens: expected {self.length} (--tokens-per-sample) to 2^31 - 1, got {self.max_tokens}"
            )


def _score_split(
    checkpoint: Checkpoint,
    blocks: _Blocks,
    place: torch.device,
    cache: ContinuousCache | None,
    statistics: NextTokenStatistics,
    name: str,
) -> None:
    """Scores a split with one model, and adds every position to `statistics`. `name` is that of the progress bar."""
    from ..fairseq_glue.output_layer import factorized_layer
    from ..models.from_checkpoint import build_model

    overrides = {"sample_break_mode": blocks.break_mode, "tokens_per_sample": blocks.length}
    model, task = build_model(checkpoint, blocks.data, overrides)
    blocks.check(model.max_positions())
    task.args.tokens_per_sample = blocks.length - blocks.context
    batches = _batches(model.to(place), task, blocks)
    if cache is not None:
        if getattr(model.decoder, "adaptive_softmax", None) is not None or factorized_layer(model) is not None:
            raise UserError(
                f"--cache-size: found an adaptive or factorized softmax in {checkpoint}; expected one softmax over "
                "all tokens"
            )
        batches = _blocks_in_order(task, blocks, model.max_positions())
    for sample in tqdm(batches, desc=name, unit="batch", disable=None, leave=False):
        if "net_input" not in sample:
            continue
        try:
            statistics.add(*_score(model, task, sample, cache))
        except torch.cuda.OutOfMemoryError as error:
            raise UserError(
                f"--max-tokens: found {sample['ntokens']} tokens too many for the GPU's memory; lower it, or choose "
                "--device cpu"
            ) from error


def _batches(model: Any, task: Any, blocks: _Blocks) -> Any:
    """The batches that fairseq-eval-lm would score."""
    check_split(blocks.data, blocks.split)
    if blocks.break_mode == "eos" and not hasattr(np, "compat"):
        raise UserError(f"--sample-break-mode eos: found numpy {np.__version__}; fairseq needs numpy<2 for it")
    try:
        task.load_dataset(blocks.split)
    except (ValueError, RuntimeError, AssertionError, OSError) as error:
        where = f"{blocks.data}/{blocks.split}"
        raise UserError(f"{where}: unreadable ({first_line(error)}); run fairseq-preprocess again") from error
    return task.eval_lm_dataloader(
        dataset=task.dataset(blocks.split),
        max_tokens=blocks.max_tokens or max(2048, blocks.length),
        max_positions=model.max_positions(),
        num_workers=0,
        context_window=blocks.context,
    )


def _blocks_in_order(task: Any, blocks: _Blocks, positions: int) -> Iterator[dict[str, Any]]:
    """Batches of one block each, in the order of the text, which fairseq changes to sort blocks by length.

    As in fairseq's batches, blocks of more tokens than the model has `positions` are left out.
    """
    from fairseq.data import LMContextWindowDataset

    dataset, padding = task.dataset(blocks.split), task.source_dictionary.pad()
    kept = np.flatnonzero(np.asarray(dataset.sizes) <= positions)
    if blocks.context:
        dataset = LMContextWindowDataset(dataset, task.args.tokens_per_sample, blocks.context, padding)
    for number in kept:
        yield dataset.collater([dataset[number]])


@torch.no_grad()
def _score(
    model: Any, task: Any, sample: dict[str, Any], cache: ContinuousCache | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """NLL in nats, target and arg-max prediction (N,) of each position that fairseq-eval-lm counts, and Σ_i P[i] (V,).

    Logits are formed and normalized for a chunk of positions at a time: beside the features (N, D), it takes the memory
    of a few times `CHUNK_ELEMENTS` numbers, whatever the batch. With a cache, the batch is one block of the text.
    """
    from fairseq import utils

    device = next(model.parameters()).device
    sample = sample if device.type == "cpu" else utils.move_to_cuda(sample, device=device)
    target = sample["target"]  # B x T
    kept = target != task.target_dictionary.pad()
    if getattr(task.args, "add_bos_token", False):
        kept &= target != task.target_dictionary.bos()
    target = target[kept]  # N
    decoder, layer, is_called = model.decoder, getattr(model.decoder, "output_layer", None), []
    if layer is not None:  # for this call it returns what it is given
        decoder.output_layer = lambda features: is_called.append(True) or features
    try:
        found = model(**sample["net_input"])[0][kept]  # N x D; or N x V, of a decoder that forms logits elsewhere
    finally:
        if layer is not None:
            del decoder.output_layer  # so that the method of the class is found again
    if cache is not None and not is_called:
        raise UserError(f"--cache-size: found {type(model).__name__}, whose logits do not come from `output_layer`")
    nll, predicted = [], []
    expected = torch.zeros(len(task.target_dictionary), dtype=torch.float64, device=device)
    rows = max(1, CHUNK_ELEMENTS // len(task.target_dictionary))
    for chunk, targets in zip(found.split(rows), target.split(rows), strict=True):
        output = layer(chunk[None]) if is_called else chunk[None]  # 1 x n x V, or features for an adaptive softmax
        log_probs = model.get_normalized_probs((output, {}), log_probs=True)[0]  # n x V
        if cache is not None:
            log_probs = cache.add(chunk, targets, log_probs)
        nll.append(-log_probs.gather(1, targets[:, None]).squeeze(1))
        predicted.append(log_probs.argmax(1))
        expected += log_probs.exp().sum(0)
    return torch.cat(nll), target, torch.cat(predicted), expected
