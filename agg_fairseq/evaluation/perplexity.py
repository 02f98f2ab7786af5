"""Perplexity, calibration and isotropy of models of text, by frequency group of the tokens."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..checkpoints import Checkpoint, EmbeddingSource, Models
from ..checkpoints.with_bias import LAYER, write_with_bias
from ..columns import CALIBRATED, CALIBRATION, MOVED, NEXT_TOKENS, PER_TEXT, add_groups
from ..data.vocabulary import Vocabulary
from ..errors import UserError
from ..files import check_writable
from ..metrics import FrequencyGroups, Geometry, NextTokenStatistics, isoscore
from ..names import GROUPINGS, HUMAN, UNIGRAM
from ..result import Result
from .inputs import check_row_names, find_device, load_vocabulary, matrix_setting
from .isotropy import geometry_by_group
from .scoring import BinarizedText, Text

WITH_BIAS = {"transformer_lm": "transformer_lm_unigram", "transformer": "transformer_unigram"}
"""Models, and the same with a log-unigram bias."""


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
    """
    check_row_names(models, HUMAN, UNIGRAM)
    texts = [text] if calibrate is None else [text, calibrate]
    vocabularies = text.load_vocabularies(models)
    embedded = {name: model for name, model in models.items() if not _is_adaptive(model)}
    matrices = matrix_setting(embedded)  # refuses all that are damaged before one is scored
    grouped, first, sizes = {}, {}, {}  # by vocabulary; the statistics of its first model
    for vocabulary in dict.fromkeys(vocabularies.values()):
        grouped[vocabulary] = _groups(vocabulary, groups, occurrences_in, tokens, as_published)
        sizes[vocabulary], *_ = [one.check(vocabulary) for one in texts]
    text_settings = [one.settings(models, vocabulary) for one in texts]
    torch_device = find_device(device)

    rows = {}
    for name, model in models.items():
        vocabulary = vocabularies[name]
        members, grouping = grouped[vocabulary]
        statistics, *others = [
            NextTokenStatistics.of(
                one.score(model, vocabulary, settings, torch_device),
                members,
                keep_positions=calibrate is not None,
            )
            for one, settings in zip(texts, text_settings, strict=True)
        ]
        before = first.setdefault(vocabulary, statistics)
        if not torch.equal(statistics.counts, before.counts):
            raise UserError(
                f"{model}: found {statistics.tokens} targets, and others than the {before.tokens} "
                "of another model; measure them one at a time"
            )
        rows[name] = _next_token_row(model, statistics, vocabulary, sizes[vocabulary])
        for calibrating in others:
            offsets = calibrating.fit_offsets()
            rows[name]["offsets"] = dict(zip(members.names, offsets.tolist(), strict=True))
            for measure, value in statistics.calibrated(offsets).items():
                rows[name][f"calibrated_{measure}"] = value
            for share in shares:
                rows[f"{name}, {share:.0%}"] = statistics.calibrated(share * offsets)
        if name in embedded:
            rows[name] |= _embedding_row(model, moved_from, members, geometry)
    settings = {
        "split": text.name,
        **text_settings[0],
        "calibrated-on": calibrate and calibrate.name,
        "groups": grouping,
        "moved-from": moved_from and str(moved_from),
        "isotropy": f"eigenvectors-of-WtW,all-rows,{matrices}",
    }
    if len(grouped) > 1:
        return Result(rows, PER_TEXT, settings | {"vocabularies": len(grouped)})
    statistics = first[vocabulary]
    rows[HUMAN] = {"unique_predictions": statistics.group_sums((statistics.counts > 0).long())}
    if vocabulary.counts is not None:
        reference = statistics.frequencies_over_observed(vocabulary.counts)
        rows[UNIGRAM] = {"expected_over_observed": reference}
    targets = statistics.group_sums(statistics.counts)
    shares = [f"{group}={targets[group] / statistics.tokens:.1%}" for group in members.names]
    facts = {"groups": members.sizes(), "targets": targets}
    settings = {
        "split": text.name,
        "targets": ",".join([str(statistics.tokens), *shares]),
        **settings,
    }
    shown = set(NEXT_TOKENS).union(*rows.values()) - set(Geometry._fields).difference(geometry)
    columns = {**NEXT_TOKENS, **PER_TEXT, **CALIBRATED, **MOVED}
    columns = {metric: keys for metric, keys in columns.items() if metric in shown}
    return Result(rows, add_groups(columns, members.names), settings, facts)


def _next_token_row(
    model: EmbeddingSource,
    statistics: NextTokenStatistics,
    vocabulary: Vocabulary,
    sizes: tuple[int, int, int] | None,
) -> dict[str, Any]:
    """The values of a row that are of the predictions; `sizes`: tokens, words and bytes of a text."""
    row = {"path": str(model), "matrix": None, "tokens": statistics.tokens, "criterion": {}}
    if isinstance(model, Checkpoint):
        row["criterion"] = model.options("criterion")
        if (classes := model.parameters.get(f"{LAYER}.class_weight")) is not None:
            row["classes"] = len(classes)
    row |= statistics.compute()
    if sizes is not None:
        has_unknown = vocabulary.unknown is not None and statistics.counts[vocabulary.unknown]
        (tokens, words, size), row["perplexity_per"] = sizes, {}
        nll = tokens * math.log(row["perplexity"]["total"])  # of the text, in nats
        for part, mean in {"word": nll / max(words, 1), "byte": nll / size}.items():
            if mean < 709 and not has_unknown:  # beyond, exp overflows
                row["perplexity_per"][part] = math.exp(mean)
    return row


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


def _is_adaptive(model: EmbeddingSource) -> bool:
    """Whether a model has an adaptive softmax, and so no single output embedding."""
    options = model.options("model") if isinstance(model, Checkpoint) else {}
    return options.get("adaptive_softmax_cutoff") is not None


def _embedding_row(
    model: EmbeddingSource,
    moved_from: EmbeddingSource | None,
    members: FrequencyGroups,
    geometry: Collection[str],
) -> dict[str, Any]:
    """The values of a row that are of the output embedding."""
    row = {"matrix": model.output_embedding.description}
    tokens_by_group = members.all_members()
    if [*geometry] == ["isoscore"]:
        row["isoscore"] = {"total": isoscore(model.output_embedding.weight)}
    elif geometry:
        row |= geometry_by_group(model, tokens_by_group)
    if moved_from is not None:  # ‖W − W₀‖ / ‖W₀‖ over the rows of each group
        before, row["moved"] = moved_from.output_embedding.weight, {}
        moved, norms = (model.output_embedding.weight - before).norm(dim=1), before.norm(dim=1)  # V
        for group, tokens in tokens_by_group.items():
            ratio = moved[tokens].norm() / norms[tokens].norm()
            row["moved"][group] = ratio.item() if len(tokens) else None
    return row


def calibrate(
    model: Checkpoint,
    data: str | Path,
    output: str | Path,
    *,
    split: str = "valid",
    occurrences_in: str | Path | None = None,
    share: float = 1.0,
    force: bool = False,
    max_tokens: int | None = None,
    device: str | None = None,
) -> Result:
    """Saves an offset per group of tokens as the bias of the output layer, so that a model expects
    each group as often as it appears in the split.

    Args:
        model: a `transformer_lm` or `transformer`, with a log-unigram bias or without.
        output: model to write, with a log-unigram bias.
        split: the split to fit on; not the one that the model is compared on.
        occurrences_in: group tokens instead by how often they occur in the training split of this
            folder: 100 times or more, 1 to 99 times, or never.
        share: share of the offsets that is added; below 1, groups come only nearer to how often they
            appear.

    Reference: none (docs/which-cure.md).
    """
    from ..fairseq_plugin.models.from_checkpoint import model_name  # imports fairseq

    check_writable(output, model.path, replace=force)
    name = model_name(model)
    if name not in {*WITH_BIAS, *WITH_BIAS.values()} or _is_adaptive(model):
        raise UserError(
            f"{model}: found a model {name}; expected a transformer_lm or transformer with one softmax"
        )
    text = BinarizedText(data, split, max_tokens=max_tokens)
    models = {"calibrating": model}
    vocabulary = load_vocabulary(models, data)
    text.check(vocabulary)
    groups = vocabulary.groups("types", occurrences_in)
    text_settings = text.settings(models, vocabulary)
    chunks = text.score(model, vocabulary, text_settings, find_device(device))
    statistics = NextTokenStatistics.of(chunks, groups, keep_positions=True)
    offsets = share * statistics.fit_offsets()

    # (V,); the last, of index −1, is of no group
    shift = torch.cat([offsets, offsets.new_zeros(1)])[groups.group_ids]
    write_with_bias(model, output, shift, vocabulary.counts, name, WITH_BIAS.get(name, name))
    uncalibrated = statistics.compute()
    rows = {
        "as it was": {measure: uncalibrated[measure] for measure in CALIBRATION},
        "calibrated": statistics.calibrated(offsets),
    }
    settings = {
        "fitted-on": split,
        "targets": statistics.tokens,
        **text_settings,
        "share": share,
        "occurrences-in": occurrences_in and str(occurrences_in),
    }
    facts = {"offsets": dict(zip(groups.names, offsets.tolist(), strict=True))}
    return Result(rows, add_groups(CALIBRATION, groups.names), settings, facts)
