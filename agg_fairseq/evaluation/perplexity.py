"""Perplexity, calibration and isotropy of models of text, by frequency group of the tokens."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..checkpoints import Checkpoint, EmbeddingSource, Models
from ..checkpoints.with_bias import LAYER
from ..columns import CALIBRATED, MOVED, NEXT_TOKENS, with_groups
from ..data.vocabulary import GROUPINGS, Vocabulary
from ..errors import UserError
from ..metrics import FrequencyGroups, Geometry, NextTokenStatistics, isoscore
from ..names import HUMAN, UNIGRAM
from ..result import Result
from .inputs import check_row_names, find_device, matrix_setting
from .isotropy import geometry_by_group
from .scoring import Text


def perplexity(
    models: Models,
    text: Text,
    *,
    calibrate: Text | None = None,
    shares: Sequence[float] = (),
    groups: str = "types",
    occurrences_in: str | Path | None = None,
    as_published: bool = False,
    moved_from: EmbeddingSource | None = None,
    geometry: Collection[str] = Geometry._fields,
    device: str | None = None,
) -> Result:
    """Evaluates language or translation models of fairseq, or language models of transformers.

    Args:
        text: a `BinarizedText` for models of fairseq, a `PlainText` for those of transformers.
        calibrate: split or other text, on which one offset per group is fitted for the calibrated
            columns; None: no columns.
        shares: for each share of these offsets, say 0.4, the model has a row `NAME, 40%` of
            calibrated `perplexity` and `expected_over_observed`.
        as_published: count `</s>` and `<unk>` as frequent, as the released code of the reference.
        moved_from: model with the same vocabulary, from whose output embedding the distance is
            measured, for the columns `moved`.
        geometry: measures of the output embedding, by group; IsoScore alone is that of all rows.

    Returns:
        Result: a row per model, with the measures of `NextTokenStatistics.compute` and
        `geometry` by group, `CALIBRATED` with `calibrate`, and `moved` with `moved_from`;
        beside them `tokens` (targets scored), `criterion` (its options), `classes` (of a factorized
        output layer), and `offsets` by group (nats). The row `human` has the distinct targets, and
        `unigram` the E/O of the training frequencies. Facts: `targets`, those scored, by group.
    """
    check_row_names(models, HUMAN, UNIGRAM)
    vocabulary = text.load_vocabulary(models)
    with_matrix = _with_matrix(models)
    members, grouping = _groups(vocabulary, groups, occurrences_in, as_published)
    torch_device = find_device(device)
    for part in dict.fromkeys([text, calibrate or text]):
        part.check(vocabulary)

    rows: dict[str, dict[str, Any]] = {}
    first = None  # statistics of the first model
    for name, model in models.items():
        chunks = text.score(models, name, vocabulary, torch_device)
        statistics = NextTokenStatistics.of(chunks, members, keep_positions=calibrate is not None)
        first = first or statistics
        if not torch.equal(statistics.counts, first.counts):
            raise UserError(
                f"{model}: found {statistics.tokens} targets, and others than the {first.tokens} "
                f"of {next(iter(models.values()))}; measure them one at a time"
            )
        row = rows[name] = {
            "path": str(model),
            "matrix": None,
            "tokens": statistics.tokens,
            "criterion": model.criterion_options if isinstance(model, Checkpoint) else {},
            **_classes(model),
            **statistics.compute(),
        }
        if calibrate is not None:
            chunks = calibrate.score(models, name, vocabulary, torch_device)
            offsets = NextTokenStatistics.of(chunks, members, keep_positions=True).fit_offsets()
            row["offsets"] = dict(zip(members.names, offsets.tolist(), strict=True))
            for measure, value in statistics.calibrated(offsets).items():
                row[f"calibrated_{measure}"] = value
            for share in shares:
                rows[f"{name}, {share:.0%}"] = statistics.calibrated(share * offsets)
        if name in with_matrix:
            row |= _of_embedding(model, moved_from, members, geometry)
    rows[HUMAN] = {"unique_predictions": first.unique_targets()}
    if vocabulary.counts is not None:
        reference = first.frequencies_over_observed(vocabulary.counts)
        rows[UNIGRAM] = {"expected_over_observed": reference}

    columns = dict(NEXT_TOKENS)
    if calibrate is not None:
        columns |= CALIBRATED
    if moved_from is not None:
        columns |= MOVED
    targets = first.targets()
    found = [str(first.tokens)]
    for group in members.names:
        found.append(f"{group}={targets[group] / first.tokens:.1%}")
    settings = {
        "split": text.name,
        "targets": ",".join(found),
        **text.settings(models, vocabulary),
        "calibrated-on": None if calibrate is None else calibrate.name,
        "groups": grouping,
        "moved-from": None if moved_from is None else str(moved_from),
        "isotropy": f"eigenvectors-of-WtW,all-rows,{matrix_setting(with_matrix)}",
    }
    facts = {"groups": members.sizes(), "targets": targets}
    return Result(rows, with_groups(columns, members.names), settings, facts)


def _groups(
    vocabulary: Vocabulary, groups: str, occurrences_in: str | Path | None, as_published: bool
) -> tuple[FrequencyGroups, str]:
    """The frequency groups, and what signatures say of them."""
    members = vocabulary.groups(groups, occurrences_in)
    grouping = GROUPINGS[groups] if occurrences_in is None else f"occurrences-in-{occurrences_in}"
    if not as_published:
        return members, grouping
    if vocabulary.counts is None:
        raise UserError(
            "--as-published: found no --train-text; expected the text to count tokens in"
        )
    special = vocabulary.excluded & (vocabulary.counts > 0)
    most_frequent = members.of_token.masked_fill(special, 0)
    return replace(members, of_token=most_frequent), f"{grouping},special-tokens-frequent"


def _classes(model: EmbeddingSource) -> dict[str, int]:
    """The number of `classes` of a factorized output layer."""
    parameters = model.parameters if isinstance(model, Checkpoint) else {}
    classes = parameters.get(f"{LAYER}.class_weight")
    return {} if classes is None else {"classes": len(classes)}


def _with_matrix(models: Models) -> dict[str, EmbeddingSource]:
    """The models that have a single output embedding, unlike those of an adaptive softmax."""
    found = {}
    for name, model in models.items():
        options = model.model_options if isinstance(model, Checkpoint) else {}
        if options.get("adaptive_softmax_cutoff") is None:
            model.output_embedding  # noqa: B018 — refuses all that are damaged before one is scored
            found[name] = model
    return found


def _of_embedding(
    model: EmbeddingSource,
    moved_from: EmbeddingSource | None,
    members: FrequencyGroups,
    geometry: Collection[str],
) -> dict[str, Any]:
    """The values of a row that are of the output embedding."""
    row: dict[str, Any] = {"matrix": model.output_embedding.description}
    rows_of = {group: members.members(group) for group in members.names}
    if [*geometry] == ["isoscore"]:
        row["isoscore"] = {"total": isoscore(model.output_embedding.weight)}
    elif geometry:
        row |= geometry_by_group(model, rows_of)
    if moved_from is not None:  # ‖W − W₀‖ / ‖W₀‖ over the rows of each group
        before, row["moved"] = moved_from.output_embedding.weight, {}
        moved, norms = (model.output_embedding.weight - before).norm(dim=1), before.norm(dim=1)  # V
        for group, tokens in rows_of.items():
            ratio = moved[tokens].norm() / norms[tokens].norm()
            row["moved"][group] = ratio.item() if len(tokens) else None
    return row
