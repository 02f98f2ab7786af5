"""Perplexity, distinct predictions, calibration and isotropy of models of text, by frequency group of the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..awd_lstm.continuous_cache import CacheOptions
from ..checkpoints import Checkpoint, EmbeddingSource
from ..data.vocabulary import GROUPINGS
from ..errors import UserError
from ..metrics import Geometry, NextTokenStatistics
from ..metrics.groups import GROUPS
from ..names import HUMAN
from ..result import Result, Row, Value, signature
from .inputs import check_row_names, find_device, matrix_signature
from .isotropy import COLUMNS, geometry_by_group
from .scoring import BinarizedText, PlainText

TOTALS = {
    "S(W)": "mean_cosine", "I(W−μ)": "isotropy_centered", "mean share": "mean_share", "IsoScore": "isoscore",
}  # fmt: skip
"""Columns of the whole embedding, and the fields of `metrics.Geometry` that they show."""
CALIBRATED = (*(f"calibrated PPL {column}" for column in ("total", "rare")), "calibrated E/O rare")
COMPARED = ("PPL total", *(f"PPL within {group}" for group in GROUPS), "E/O rare", "IsoScore", *CALIBRATED)
"""The columns by which models are compared. The others are changed by a constant on the logits of a group, by a shift
of all embeddings, or are of a kind that only some tables of the papers have."""


def perplexity(
    checkpoints: Mapping[str, EmbeddingSource],
    data: str | Path | None = None,
    *,
    split: str = "test",
    text: str | Path | None = None,
    train_text: str | Path | None = None,
    calibrate: str | Path | None = None,
    tokens_per_sample: int | None = None,
    sample_break_mode: str = "none",
    context_window: int = 0,
    max_tokens: int | None = None,
    groups: str = "types",
    cache: CacheOptions | None = None,
    device: str | None = None,
) -> Result:
    """Evaluates language models or translation models of fairseq, or language models of transformers, side by side.

    Tokens are frequent, medium or rare by their frequency in the training text. The table shows what models are
    compared by:

      PPL total     perplexity of all targets, that of fairseq-eval-lm with the same options
      PPL within …  perplexity of the targets of a group among the tokens of that group: does the model know which rare
                    token comes? PPL = PPL group x PPL within, where PPL group says whether it expects the right group.
                    A constant that is added to the logits of all rare tokens changes PPL and PPL group, and not PPL
                    within
      E/O rare      expected over observed: the sum of the probabilities of rare tokens, divided by the number of rare
                    targets. Above 1, rare tokens are expected too often. The row `human` has that of the training
                    frequencies, which need not be those of the text
      IsoScore      the share of the dimensions that the output embeddings use evenly (1 is isotropic)

    --calibrate valid fits one constant per group to the logits on that split, and adds the perplexity and E/O with
    them. --full shows all columns: also PPL and PPL group, Uniq (the number of tokens that are the most probable one
    somewhere), and the isotropy I(W), mean cosine S(W), I(W−μ) and mean share of the output embedding, as
    `agg-fairseq isotropy --help` explains them. A translation model scores the target side, given the source and the
    tokens before. A model that was trained with --task language_modeling_streams reads the whole split as one text, and
    carries its state from block to block.

        agg-fairseq eval-lm data-bin/wikitext-2 --path runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt
        agg-fairseq eval-lm --text test.txt --train-text train.txt --path runs/gpt2-mle runs/gpt2-agg

    Args:
        checkpoints: models by the names of their rows.
        data: folder written by `fairseq-preprocess`, with the training split, for models of fairseq.
        split: split to score.
        text: for models of transformers, text to score, in UTF-8, instead of `data` and `split`. It is encoded without
            special tokens and cut into blocks, of which the first token is not scored.
        train_text: with `text`, text in which the frequencies are counted; None: `text`.
        calibrate: split, or with `text` a file, on which one offset per group is fitted, for the calibrated columns;
            None: there are none.
        tokens_per_sample: tokens per block, its context included; None: as in training, and for models of transformers
            their positions, at most 1,024. This and the next two are not for translation models.
        sample_break_mode: how the split is cut into blocks; with none, across lines.
        context_window: tokens of context before each block, which are not scored.
        max_tokens: tokens per batch; None: 2048, or a block where that is longer.
        groups: frequent, medium and rare tokens by one of `data.vocabulary.GROUPINGS`.
        cache: options of a continuous cache, with which the text is read block by block in its order; None: no cache.
        device: cpu, cuda, cuda:1, …; None: a GPU if there is one.

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
    """
    check_row_names(checkpoints, HUMAN)
    if text is None:
        if train_text is not None:
            raise UserError(
                "--train-text: found it without --text; expected DATA alone, whose training split is counted"
            )
        source = BinarizedText(
            checkpoints,
            data,
            length=tokens_per_sample,
            break_mode=sample_break_mode,
            context=context_window,
            max_tokens=max_tokens,
            cache=None if cache is None else CacheOptions(*cache),
        )
    else:
        if data is not None or (sample_break_mode, context_window, max_tokens, cache) != ("none", 0, None, None):
            raise UserError(
                "DATA, --sample-break-mode, --context-window, --max-tokens, --cache-size: found one of them "
                "with --text, which is scored block by block; leave it out"
            )
        source = PlainText(checkpoints, text, train_text, tokens_per_sample)
        split = str(text)
    with_matrix = {  # an adaptive softmax has no single output embedding
        name: one
        for name, one in checkpoints.items()
        if not isinstance(one, Checkpoint) or one.model_options.get("adaptive_softmax_cutoff") is None
    }
    for checkpoint in with_matrix.values():  # all of them before the first model is scored
        if not checkpoint.output_embedding.saved.any():
            raise UserError(
                f"{checkpoint}: found only zeros in {checkpoint.output_embedding.name}; expected a trained model"
            )
    members, place = source.vocabulary.groups(groups), find_device(device)
    for name in {split, split if calibrate is None else str(calibrate)}:
        source.check(name)

    evaluated: list[dict[str, Any]] = []
    rows: dict[Row, dict[str, Value]] = {}
    for name, checkpoint in checkpoints.items():
        offsets = None
        if calibrate is not None:
            chunks = source.score(checkpoint, str(calibrate), place, name)
            fitted_on = NextTokenStatistics.of(chunks, members, keep_positions=True)
            try:
                offsets = fitted_on.fit_offsets()
            except ValueError as error:
                raise UserError(f"--calibrate {calibrate}: {checkpoint}: {error}") from error
        chunks = source.score(checkpoint, split, place, name)
        statistics = NextTokenStatistics.of(chunks, members, offsets=offsets)
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
            "criterion": checkpoint.criterion_options if isinstance(checkpoint, Checkpoint) else {},
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
    reference = statistics.frequencies_over_observed(source.vocabulary.counts)
    rows[HUMAN] = {f"Uniq {column}": human[column] for column in COLUMNS} | {"E/O rare": reference["rare"]}
    shares = ",".join(f"{group}={targets[group] / targets['total']:.1%}" for group in GROUPS)
    return Result.of(
        rows,
        signature(
            f"split:{Path(split).name}",
            f"targets:{targets['total']},{shares}",
            *source.signature,
            None if calibrate is None else f"calibrated-on:{Path(calibrate).name}",
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
