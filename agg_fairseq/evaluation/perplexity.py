"""Perplexity, distinct predictions, calibration and isotropy of models of text, by frequency group
of the tokens."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..checkpoints import Checkpoint, EmbeddingSource
from ..columns import CALIBRATED, MOVED, NEXT_TOKENS, with_groups
from ..data.vocabulary import GROUPINGS
from ..errors import UserError
from ..metrics import NextTokenStatistics
from ..names import HUMAN, UNIGRAM
from ..result import Result
from .inputs import check_row_names, find_device, matrix_setting
from .isotropy import geometry_by_group
from .scoring import Text


def perplexity(
    models: Mapping[str, EmbeddingSource],
    text: Text,
    *,
    calibrate: Text | None = None,
    shares: Sequence[float] = (),
    groups: str = "types",
    occurrences_in: str | Path | None = None,
    moved_from: EmbeddingSource | None = None,
    device: str | None = None,
) -> Result:
    """Evaluates language models or translation models of fairseq, or language models of
    transformers, side by side.

    Args:
        text: to score, a `BinarizedText` for models of fairseq or a `PlainText` for those of
            transformers.
        calibrate: text of the same kind, on which one offset per group is fitted for the calibrated
            columns; None: there are none.
        shares: of these offsets; with each, say 0.4, the model has a row `NAME, 40%` of calibrated
            `perplexity` and `expected_over_observed`.
        occurrences_in: group tokens by their occurrences in this text instead, as
            `metrics.occurrence_groups`: the training split of a folder with the same dictionary, or
            for models of transformers a file.
        moved_from: a model with the same vocabulary, from whose output embedding the distance is
            measured.

    Returns:
        Result: a row per model, with `perplexity`, `group_perplexity`, `within_perplexity`,
        `unique_predictions`, `expected_over_observed` and the fields of `metrics.Geometry` by
        group, and with `calibrate` also `calibrated_perplexity` and
        `calibrated_expected_over_observed`, with `moved_from` also `moved`; beside the measures
        `path`, `matrix`, `tokens` (targets scored), `criterion` (the options that it was trained
        with), and `offsets` by group (nats). The row `human` has the distinct targets, and
        `unigram` the E/O of a model that always predicts the training frequencies.
        Facts: `groups`, their sizes, and `targets`, those scored, by group.

    Reference: Yu et al. (2022), Tables 1–3.
    """
    check_row_names(models, HUMAN, UNIGRAM)
    vocabulary = text.load_vocabulary(models)
    with_matrix = {  # an adaptive softmax has no single output embedding
        name: model
        for name, model in models.items()
        if not isinstance(model, Checkpoint)
        or model.model_options.get("adaptive_softmax_cutoff") is None
    }
    for model in with_matrix.values():  # all of them before the first model is scored
        model.output_embedding  # noqa: B018
    members, torch_device = vocabulary.groups(groups, occurrences_in), find_device(device)
    for part in dict.fromkeys([text, calibrate or text]):
        part.check(vocabulary)

    rows: dict[str, dict[str, Any]] = {}
    counts = None  # of the targets of the first model
    for name, model in models.items():
        offsets = None
        if calibrate is not None:
            chunks = calibrate.score(models, name, vocabulary, torch_device)
            offsets = NextTokenStatistics.of(chunks, members, keep_positions=True).fit_offsets()
        chunks = text.score(models, name, vocabulary, torch_device)
        statistics = NextTokenStatistics.of(chunks, members, keep_positions=offsets is not None)
        counts = statistics.counts if counts is None else counts
        if not torch.equal(statistics.counts, counts):
            raise UserError(
                f"{model}: found {statistics.tokens} targets, and others than the {counts.sum()} "
                "of "
                f"{next(iter(models.values()))}, which can read other sentences or blocks; measure "
                "them one at a time"
            )
        row = rows[name] = {
            "path": str(model),
            "matrix": None,
            "tokens": statistics.tokens,
            "criterion": model.criterion_options if isinstance(model, Checkpoint) else {},
            **statistics.compute(),
        }
        if name in with_matrix:
            row["matrix"] = model.output_embedding.description
            rows_of = {group: members.members(group) for group in members.names}
            row |= geometry_by_group(model, rows_of)
            if moved_from is not None:  # ‖W − W₀‖ / ‖W₀‖ over the rows of each group
                before = moved_from.output_embedding.weight
                # V
                moved, norms = (
                    (model.output_embedding.weight - before).norm(dim=1),
                    before.norm(dim=1),
                )
                row["moved"] = {
                    group: (moved[tokens].norm() / norms[tokens].norm()).item()
                    if len(tokens)
                    else None
                    for group, tokens in rows_of.items()
                }
        if offsets is not None:
            row["offsets"] = dict(zip(members.names, offsets.tolist(), strict=True))
            row |= {
                f"calibrated_{measure}": value
                for measure, value in statistics.calibrated(offsets).items()
            }
            rows |= {
                f"{name}, {share:.0%}": statistics.calibrated(share * offsets) for share in shares
            }
    rows[HUMAN] = {"unique_predictions": statistics.unique_targets()}
    if vocabulary.counts is not None:
        reference = statistics.frequencies_over_observed(vocabulary.counts)
        rows[UNIGRAM] = {"expected_over_observed": reference}
    targets = statistics.targets()
    shares = ",".join(f"{group}={targets[group] / targets['total']:.1%}" for group in members.names)
    settings = {
        "split": text.name,
        "targets": f"{targets['total']},{shares}",
        **text.settings(models, vocabulary),
        "calibrated-on": None if calibrate is None else calibrate.name,
        "groups": GROUPINGS[groups]
        if occurrences_in is None
        else f"occurrences-in-{occurrences_in}",
        "moved-from": None if moved_from is None else str(moved_from),
        "isotropy": f"eigenvectors-of-WtW,all-rows,{matrix_setting(with_matrix)}",
    }
    columns = NEXT_TOKENS if calibrate is None else {**NEXT_TOKENS, **CALIBRATED}
    if moved_from is not None:
        columns = {**columns, **MOVED}
    return Result(
        rows,
        with_groups(columns, members.names),
        settings,
        {"groups": members.sizes(), "targets": targets},
    )
