"""Perplexity, distinct predictions, calibration and isotropy of models of text, by frequency group of the tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..awd_lstm.continuous_cache import CacheOptions, ContinuousCache
from ..checkpoints.fairseq_checkpoint import STREAMS, Checkpoint
from ..data.binarized import load_dictionary
from ..data.vocabulary import GROUPINGS
from ..errors import UserError, first_line
from ..functional.loss_core import CHUNK_ELEMENTS
from ..metrics import FrequencyGroups, Geometry, NextTokenStatistics
from ..metrics.groups import GROUPS
from ..names import HUMAN
from ..result import Result, Row, Value, signature
from .inputs import block_lengths, check_split, find_device, load_vocabulary, matrix_signature
from .isotropy import geometry_by_group

BREAK_MODES = ("none", "complete", "complete_doc", "eos")
"""How fairseq cuts a split into blocks."""
COLUMNS = (*GROUPS, "total")
TOTALS = {
    "S(W)": "mean_cosine", "I(W−μ)": "isotropy_centered", "mean share": "mean_share", "IsoScore": "isoscore",
}  # fmt: skip
"""Columns of the whole embedding, and the fields of `metrics.Geometry` that they show."""
CALIBRATED = (*(f"calibrated PPL {column}" for column in ("total", "rare")), "calibrated E/O rare")
COMPARED = ("PPL total", *(f"PPL within {group}" for group in GROUPS), "E/O rare", "IsoScore", *CALIBRATED)
"""The columns by which models are compared. The others are changed by a constant on the logits of a group, by a shift
of all embeddings, or are of a kind that only some tables of the papers have."""


def perplexity(
    checkpoints: Mapping[str, Checkpoint],
    data: str | Path,
    *,
    split: str = "test",
    calibrate: str | None = None,
    tokens_per_sample: int | None = None,
    sample_break_mode: str = "none",
    context_window: int = 0,
    max_tokens: int | None = None,
    groups: str = "types",
    cache: CacheOptions | None = None,
    device: str | None = None,
) -> Result:
    """Scores a split with each model, over the targets (perplexity) or the arg-max predictions (Uniq) of each group.

    The perplexity of a group's targets is that of their group times that within the group (see
    `metrics.next_token`): a model that expects rare tokens more often changes the first, and one that knows which rare
    token comes the second. E/O, expected over observed, is the sum of the probabilities that a group gets at all
    positions, divided by the number of its targets: 2 means that the model expects such tokens twice too often. The
    total perplexity is that of fairseq-eval-lm with the same options. I(W) is the isotropy of the output embedding (1
    is isotropic) and S(W) its mean cosine (0 is isotropic), over all rows, those of special tokens included; I(W−μ),
    the mean share and IsoScore are as of `isotropy`.

    Args:
        checkpoints: language models, by the names of their rows; or translation models, whose target side is scored,
            given the source and the tokens before.
        data: folder written by `fairseq-preprocess`, with the training split, from which the frequencies are counted.
        split: the split to score.
        calibrate: a split on which one offset per group is fitted, for the calibrated columns; None: there are none.
        tokens_per_sample: tokens per block, its context included; None: as in training. This and the next two are for
            language models alone.
        sample_break_mode: how the split is cut into blocks, one of `BREAK_MODES`; "none": across lines.
        context_window: tokens of context before each block, which are not scored.
        max_tokens: tokens per batch; None: 2048, or a block where that is longer.
        groups: frequent, medium and rare tokens by one of `data.vocabulary.GROUPINGS`.
        cache: options of a continuous cache, with which the text is read block by block in its order; None: none.
        device: "cpu", "cuda", …; None: a GPU if there is one.

    A model that was trained with `--task language_modeling_streams` reads the whole split as one text, in blocks, and
    carries its state from block to block.

    Returns:
        Result: a row per model, and the row `human` with the distinct targets and the E/O of the training frequencies.
        `COMPARED` are the columns of a short table. Details: `groups`, their sizes; `targets`, those scored, by group;
        `human_uniq`; `frequencies_over_observed`; and `checkpoints`, for each `name`, `path`, `embedding`,
        `perplexity`, `group_perplexity`, `within_perplexity`, `uniq`, `expected_over_observed` and `isotropy` by group,
        `geometry` as of `geometry_by_group`, `mean_cosine`, `tokens` (targets scored), `criterion` (the options that it
        was trained with), and with `calibrate` also `offsets` (nats), `calibrated_perplexity` and
        `calibrated_expected_over_observed` by group.

    Raises:
        UserError: a checkpoint is no model over the dictionary of `data`; the models were trained on blocks of
            different lengths and no length is given; an option is out of its range; the offsets cannot be fitted; a
            checkpoint is named `human`; the data is damaged.

    Reference: Yu et al. (2022), Tables 1–3.

    Example:
        >>> runs = open_checkpoints(["runs/mle/checkpoint_best.pt", "runs/agg/checkpoint_best.pt"])  # doctest: +SKIP
        >>> print(perplexity(runs, "data-bin/wikitext-2").select(COMPARED).table())  # doctest: +SKIP
    """
    if HUMAN in checkpoints:
        raise UserError(f"--name: found {HUMAN!r}, the row of the targets; give the checkpoint another name")
    vocabulary = load_vocabulary(checkpoints, data)
    with_matrix = {  # an adaptive softmax has no single output embedding
        name: checkpoint
        for name, checkpoint in checkpoints.items()
        if checkpoint.model_options.get("adaptive_softmax_cutoff") is None
    }
    for checkpoint in checkpoints.values():  # all of them before the first model is scored
        checkpoint.check_vocabulary(len(vocabulary.tokens), data)
    for checkpoint in with_matrix.values():
        if not checkpoint.output_embedding.saved.any():
            raise UserError(
                f"{checkpoint}: found only zeros in {checkpoint.output_embedding.name}; expected a trained model"
            )
    if vocabulary.languages is None:
        lengths = block_lengths(checkpoints)
        if tokens_per_sample is None and len(set(lengths)) > 1:
            raise UserError(
                f"found models trained on {', '.join(map(str, lengths))} tokens per block; give --tokens-per-sample, "
                "since perplexities over blocks of different lengths do not compare"
            )
        length = lengths[0] if tokens_per_sample is None else tokens_per_sample
    elif tokens_per_sample is not None or sample_break_mode != "none" or context_window or cache is not None:
        raise UserError(
            "--tokens-per-sample, --sample-break-mode, --context-window, --cache-size: found one of them with a "
            "translation model, which scores pairs of sentences; leave it out"
        )
    else:
        length = 1
    carrying = [name for name, checkpoint in checkpoints.items() if checkpoint.task_options["_name"] == STREAMS]
    if carrying and context_window:
        raise UserError(
            f"--context-window: found {context_window} with {carrying[0]}, which carries its state from block to "
            "block; expected 0"
        )
    if cache is not None:
        cache = CacheOptions(*cache)
        try:
            ContinuousCache(cache)
        except ValueError as error:
            raise UserError(str(error)) from error
    text = _Text(data, length, sample_break_mode, context_window, max_tokens, cache)
    members, place = vocabulary.groups(groups), find_device(device)
    for name in {split, calibrate or split}:
        file = vocabulary.split.name.replace("train", name, 1)  # of a parallel split with its side
        check_split(data, vocabulary.dictionary, file)
        if vocabulary.languages is not None:
            source, target = vocabulary.languages
            check_split(data, load_dictionary(data, f"dict.{source}.txt"), f"{file.removesuffix(target)}{source}")

    evaluated: list[dict[str, Any]] = []
    rows: dict[Row, dict[str, Value]] = {}
    for name, checkpoint in checkpoints.items():
        offsets = None
        if calibrate is not None:
            fitted_on = _score(checkpoint, text, calibrate, place, name, members, keep_positions=True)
            try:
                offsets = fitted_on.fit_offsets()
            except ValueError as error:
                raise UserError(f"--calibrate {calibrate}: {checkpoint}: {error}") from error
        statistics = _score(checkpoint, text, split, place, name, members, offsets=offsets)
        embedding = checkpoint.output_embedding if name in with_matrix else None
        geometry = {column: dict.fromkeys(Geometry._fields) for column in COLUMNS}
        if embedding is not None:
            geometry = geometry_by_group(embedding.weight, {group: members.members(group) for group in GROUPS})
        found: dict[str, Any] = {
            "path": str(checkpoint),
            "embedding": None if embedding is None else embedding.description,
            "perplexity": statistics.perplexity(),
            "group_perplexity": statistics.group_perplexity(),
            "within_perplexity": statistics.within_perplexity(),
            "uniq": statistics.unique_predictions(),
            "expected_over_observed": statistics.expected_over_observed(),
            "geometry": geometry,
            "isotropy": {column: geometry[column]["isotropy"] for column in COLUMNS},
            "mean_cosine": geometry["total"]["mean_cosine"],
            "tokens": statistics.tokens,
            "criterion": checkpoint.criterion_options,
        }
        titles = {
            "PPL": "perplexity", "PPL group": "group_perplexity", "PPL within": "within_perplexity", "Uniq": "uniq",
            "I(W)": "isotropy",
        }  # fmt: skip
        row = {f"{title} {column}": found[measure][column] for title, measure in titles.items() for column in COLUMNS}
        row |= {title: geometry["total"][measure] for title, measure in TOTALS.items()}
        row["E/O rare"] = found["expected_over_observed"]["rare"]
        if offsets is not None:
            found["offsets"] = dict(zip(GROUPS, offsets.tolist(), strict=True))
            found["calibrated_perplexity"] = statistics.calibrated_perplexity()
            found["calibrated_expected_over_observed"] = statistics.calibrated_expected_over_observed()
            row |= {f"calibrated PPL {column}": found["calibrated_perplexity"][column] for column in ("total", "rare")}
            row["calibrated E/O rare"] = found["calibrated_expected_over_observed"]["rare"]
        evaluated.append({"name": name, **found})
        rows[name] = row
    human, targets = statistics.unique_targets(), statistics.targets()  # the same with each model
    reference = statistics.frequencies_over_observed(vocabulary.counts)
    rows[HUMAN] = {f"Uniq {column}": human[column] for column in COLUMNS} | {"E/O rare": reference["rare"]}
    is_text = vocabulary.languages is None
    return Result.of(
        rows,
        signature(
            f"split:{split}",
            f"targets:{targets['total']}," + ",".join(f"{one}={targets[one] / targets['total']:.1%}" for one in GROUPS),
            f"tokens-per-sample:{length}" if is_text else f"pairs:{'-'.join(vocabulary.languages)}",
            f"break:{sample_break_mode}" if is_text else None,
            f"context:{context_window}" if is_text else None,
            f"state:carried({','.join(carrying)})" if carrying else None,
            None if cache is None else f"cache:{cache.size},theta={cache.theta:g},lambda={cache.weight:g}",
            None if calibrate is None else f"calibrated-on:{calibrate}",
            f"groups:{GROUPINGS[groups]}",
            f"isotropy:eigenvectors-of-WtW,all-rows,{matrix_signature(with_matrix)}",
        ),
        {
            "groups": members.sizes(),
            "targets": targets,
            "human_uniq": human,
            "frequencies_over_observed": reference,
            "checkpoints": evaluated,
        },
    )


@dataclass(frozen=True)
class _Text:
    """How a split is read: the options of `perplexity` of these names."""

    data: str | Path
    length: int  # tokens per block
    break_mode: str
    context: int
    max_tokens: int | None
    cache: CacheOptions | None

    def check_blocks(self, positions: int) -> None:
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


def _score(
    checkpoint: Checkpoint,
    text: _Text,
    split: str,
    place: torch.device,
    name: str,
    members: FrequencyGroups,
    **options: Any,
) -> NextTokenStatistics:
    """The statistics of a split under one model; `name` is that of the progress bar."""
    from ..fairseq_glue.output_layer import factorized_layer
    from ..models.from_checkpoint import build_model

    overrides = {"sample_break_mode": text.break_mode, "tokens_per_sample": text.length}
    model, task = build_model(checkpoint, text.data, overrides if checkpoint.is_language_model else {})
    model.to(place)
    if checkpoint.is_language_model:
        text.check_blocks(model.max_positions())
        task.args.tokens_per_sample = text.length - text.context
        if text.break_mode == "eos" and not hasattr(np, "compat"):
            raise UserError(f"--sample-break-mode eos: found numpy {np.__version__}; fairseq needs numpy<2 for it")
    cache = None if text.cache is None else ContinuousCache(text.cache)
    if cache is not None and (
        getattr(model.decoder, "adaptive_softmax", None) is not None or factorized_layer(model) is not None
    ):
        raise UserError(
            f"--cache-size: found an adaptive or factorized softmax in {checkpoint}; expected one softmax over "
            "all tokens"
        )
    try:
        task.load_dataset(split)
    except (ValueError, RuntimeError, AssertionError, OSError) as error:
        where = f"{text.data}/{split}"
        raise UserError(f"{where}: unreadable ({first_line(error)}); run fairseq-preprocess again") from error
    statistics = NextTokenStatistics(members, **options)
    for sample in tqdm(_batches(model, task, text, split), desc=name, unit="batch", disable=None, leave=False):
        if "net_input" not in sample:
            continue
        try:
            for log_probs, target in _log_probs(model, task, sample, cache):
                statistics.add(log_probs, target)
        except torch.cuda.OutOfMemoryError as error:
            raise UserError(
                f"--max-tokens: found {sample['ntokens']} tokens too many for the GPU's memory; lower it, or choose "
                "--device cpu"
            ) from error
    return statistics


def _batches(model: Any, task: Any, text: _Text, split: str) -> Any:
    """The batches that fairseq-eval-lm would score; pairs of a translation model; or with a cache single blocks."""
    dataset, positions = task.dataset(split), model.max_positions()
    if not hasattr(task, "eval_lm_dataloader"):
        return task.get_batch_iterator(
            dataset, max_tokens=text.max_tokens or 2048, max_positions=positions, ignore_invalid_inputs=True
        ).next_epoch_itr(shuffle=False)
    if text.cache is not None:
        return _blocks_in_order(task, text, dataset, positions)
    return task.eval_lm_dataloader(
        dataset=dataset,
        max_tokens=text.max_tokens or max(2048, text.length),
        max_positions=positions,
        num_workers=0,
        context_window=text.context,
    )


def _blocks_in_order(task: Any, text: _Text, dataset: Any, positions: int) -> Iterator[dict[str, Any]]:
    """Batches of one block each, in the order of the text, which fairseq changes to sort blocks by length.

    As in fairseq's batches, blocks of more tokens than the model has `positions` are left out.
    """
    from fairseq.data import LMContextWindowDataset

    kept = np.flatnonzero(np.asarray(dataset.sizes) <= positions)
    if text.context:
        padding = task.source_dictionary.pad()
        dataset = LMContextWindowDataset(dataset, task.args.tokens_per_sample, text.context, padding)
    for number in kept:
        yield dataset.collater([dataset[number]])


@torch.no_grad()
def _log_probs(
    model: Any, task: Any, sample: dict[str, Any], cache: ContinuousCache | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Log-probabilities (n, V) and targets (n,) of each chunk of the positions that fairseq-eval-lm counts.

    Logits are formed and normalized for a chunk of positions at a time: beside the features (N, D), it takes the memory
    of a few times `CHUNK_ELEMENTS` numbers, whatever the batch. With a cache, the batch is one block of the text.
    """
    from fairseq import utils

    device = next(model.parameters()).device
    sample = sample if device.type == "cpu" else utils.move_to_cuda(sample, device=device)
    target = sample["target"]  # B x T
    kept = target != task.target_dictionary.pad()
    if getattr(getattr(task, "args", None), "add_bos_token", False):
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
    rows = max(1, CHUNK_ELEMENTS // len(task.target_dictionary))
    for chunk, targets in zip(found.split(rows), target.split(rows), strict=True):
        output = layer(chunk[None]) if is_called else chunk[None]  # 1 x n x V, or features for an adaptive softmax
        log_probs = model.get_normalized_probs((output, {}), log_probs=True)[0]  # n x V
        yield (log_probs if cache is None else cache.add(chunk, targets, log_probs)), targets
