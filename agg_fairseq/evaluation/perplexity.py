"""Perplexity, calibration and isotropy of models of text, by frequency group of the tokens."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..checkpoints import Checkpoint, EmbeddingSource, Models
from ..checkpoints.with_bias import LAYER
from ..columns import CALIBRATED, MOVED, NEXT_TOKENS, PER_TEXT, Columns, add_groups
from ..data.vocabulary import Vocabulary
from ..errors import UserError
from ..metrics import FrequencyGroups, Geometry, NextTokenStatistics, isoscore
from ..names import GROUPINGS, HUMAN, UNIGRAM
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
    tokens: str | Path | None = None,
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
        tokens: file with a token per line; group tokens instead as listed in it, or other.
        as_published: count `</s>` and `<unk>` as frequent, as the released code of the reference.
        moved_from: model with the same vocabulary, from whose output embedding the distance is
            measured, for the columns `moved`.
        geometry: measures of the output embedding, by group; IsoScore alone is that of all rows.

    Returns:
        Result: a row per model, with the measures of `NextTokenStatistics.compute` and
        `geometry` by group, `CALIBRATED` with `calibrate`, and `moved` with `moved_from`;
        `perplexity_per` word and byte of a `PlainText` without unknown tokens; beside them
        `tokens` (targets scored), `criterion` (its options), `classes` (of a factorized
        output layer), and `offsets` by group (nats). The row `human` has the distinct targets, and
        `unigram` the E/O of the training frequencies. Facts: `targets`, those scored, by group. With
        several vocabularies, the table has `perplexity_per` alone, and no such rows and facts.
    """
    check_row_names(models, HUMAN, UNIGRAM)
    vocabularies = text.load_vocabularies(models)
    embedded = _embedded(models)
    grouped, first, sizes = {}, {}, {}  # by vocabulary; the statistics of its first model
    for vocabulary in dict.fromkeys(vocabularies.values()):
        grouped[vocabulary] = _groups(vocabulary, groups, occurrences_in, tokens, as_published)
        if calibrate is not None:
            calibrate.check(vocabulary)
        sizes[vocabulary] = text.check(vocabulary)
    torch_device = find_device(device)

    rows: dict[str, dict[str, Any]] = {}
    for name, model in models.items():
        vocabulary = vocabularies[name]
        members, grouping = grouped[vocabulary]
        chunks = text.score(models, name, vocabulary, torch_device)
        statistics = NextTokenStatistics.of(chunks, members, keep_positions=calibrate is not None)
        before = first.setdefault(vocabulary, statistics)
        if not torch.equal(statistics.counts, before.counts):
            raise UserError(
                f"{model}: found {statistics.tokens} targets, and others than the {before.tokens} "
                "of another model; measure them one at a time"
            )
        row = rows[name] = {
            "path": str(model),
            "matrix": None,
            "tokens": statistics.tokens,
            "criterion": model.criterion_options if isinstance(model, Checkpoint) else {},
            **_classes(model),
            **statistics.compute(),
        }
        if sizes[vocabulary] is not None:
            has_unknown = vocabulary.unknown is not None and statistics.counts[vocabulary.unknown]
            row["perplexity_per"] = {} if has_unknown else _text_perplexity(row, *sizes[vocabulary])
        if calibrate is not None:
            chunks = calibrate.score(models, name, vocabulary, torch_device)
            offsets = NextTokenStatistics.of(chunks, members, keep_positions=True).fit_offsets()
            row["offsets"] = dict(zip(members.names, offsets.tolist(), strict=True))
            for measure, value in statistics.calibrated(offsets).items():
                row[f"calibrated_{measure}"] = value
            for share in shares:
                rows[f"{name}, {share:.0%}"] = statistics.calibrated(share * offsets)
        if name in embedded:
            row |= _embedding_row(model, moved_from, members, geometry)
    settings = {
        "split": text.name,
        **text.settings(models, vocabulary),
        "calibrated-on": None if calibrate is None else calibrate.name,
        "groups": grouping,
        "moved-from": None if moved_from is None else str(moved_from),
        "isotropy": f"eigenvectors-of-WtW,all-rows,{matrix_setting(embedded)}",
    }
    if len(grouped) > 1:
        return Result(rows, PER_TEXT, settings | {"vocabularies": len(grouped)})
    statistics = first[vocabulary]
    rows[HUMAN] = {"unique_predictions": statistics.unique_targets()}
    if vocabulary.counts is not None:
        reference = statistics.frequencies_over_observed(vocabulary.counts)
        rows[UNIGRAM] = {"expected_over_observed": reference}
    facts = {"groups": members.sizes(), "targets": statistics.targets()}
    settings = {"split": text.name, "targets": _shares(statistics), **settings}
    return Result(rows, add_groups(_columns(rows), members.names), settings, facts)


def _columns(rows: Mapping[str, Mapping[str, Any]]) -> Columns:
    """`NEXT_TOKENS`, and the other columns that a row has a value for."""
    columns = dict(NEXT_TOKENS)
    for metric, keys in {**PER_TEXT, **CALIBRATED, **MOVED}.items():
        if any(metric in row for row in rows.values()):
            columns[metric] = keys
    return columns


def _shares(statistics: NextTokenStatistics) -> str:
    """The number of targets, and the shares of the groups in them."""
    found, targets = [str(statistics.tokens)], statistics.targets()
    for group in statistics.groups.names:
        found.append(f"{group}={targets[group] / statistics.tokens:.1%}")
    return ",".join(found)


def _groups(
    vocabulary: Vocabulary,
    groups: str,
    occurrences_in: str | Path | None,
    tokens: str | Path | None,
    as_published: bool,
) -> tuple[FrequencyGroups, str]:
    """The frequency groups, and what signatures say of them."""
    members, grouping = vocabulary.groups(groups, occurrences_in, tokens), GROUPINGS[groups]
    if occurrences_in is not None:
        grouping = f"occurrences-in-{occurrences_in}"
    elif tokens is not None:
        grouping = f"listed-in-{tokens}"
    if not as_published:
        return members, grouping
    if vocabulary.counts is None:
        raise UserError(
            "--as-published: found no --train-text; expected the text to count tokens in"
        )
    special = vocabulary.excluded & (vocabulary.counts > 0)
    most_frequent = members.group_ids.masked_fill(special, 0)
    return replace(members, group_ids=most_frequent), f"{grouping},special-tokens-frequent"


def _text_perplexity(
    row: Mapping[str, Any], tokens: int, words: int, size: int
) -> dict[str, float]:
    """`perplexity_per` of a text of so many tokens, words and bytes; without one that overflows."""
    nll = tokens * math.log(row["perplexity"]["total"])  # of the text, in nats
    means = {"word": nll / max(words, 1), "byte": nll / size}
    return {part: math.exp(mean) for part, mean in means.items() if mean < 709}


def _classes(model: EmbeddingSource) -> dict[str, int]:
    """The number of `classes` of a factorized output layer."""
    parameters = model.parameters if isinstance(model, Checkpoint) else {}
    classes = parameters.get(f"{LAYER}.class_weight")
    return {} if classes is None else {"classes": len(classes)}


def _embedded(models: Models) -> dict[str, EmbeddingSource]:
    """The models that have a single output embedding, unlike those of an adaptive softmax."""
    found = {}
    for name, model in models.items():
        options = model.model_options if isinstance(model, Checkpoint) else {}
        if options.get("adaptive_softmax_cutoff") is None:
            model.output_embedding  # noqa: B018 — refuses all that are damaged before one is scored
            found[name] = model
    return found


def _embedding_row(
    model: EmbeddingSource,
    moved_from: EmbeddingSource | None,
    members: FrequencyGroups,
    geometry: Collection[str],
) -> dict[str, Any]:
    """The values of a row that are of the output embedding."""
    row: dict[str, Any] = {"matrix": model.output_embedding.description}
    group_rows = {group: members.members(group) for group in members.names}
    if [*geometry] == ["isoscore"]:
        row["isoscore"] = {"total": isoscore(model.output_embedding.weight)}
    elif geometry:
        row |= geometry_by_group(model, group_rows)
    if moved_from is not None:  # ‖W − W₀‖ / ‖W₀‖ over the rows of each group
        before, row["moved"] = moved_from.output_embedding.weight, {}
        moved, norms = (model.output_embedding.weight - before).norm(dim=1), before.norm(dim=1)  # V
        for group, tokens in group_rows.items():
            ratio = moved[tokens].norm() / norms[tokens].norm()
            row["moved"][group] = ratio.item() if len(tokens) else None
    return row
