"""Perplexity, distinct predictions, calibration and isotropy of models of text, by frequency group of the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checkpoints import Checkpoint, EmbeddingSource
from ..data.vocabulary import GROUPINGS
from ..errors import UserError
from ..metrics import Geometry, NextTokenStatistics
from ..metrics.groups import GROUPS
from ..names import HUMAN
from ..result import Result, Row, Value, signature
from .inputs import check_row_names, find_device, matrix_signature
from .isotropy import COLUMNS, geometry_by_group
from .scoring import Text

TOTALS = {
    "S(W)": "mean_cosine", "I(W−μ)": "isotropy_centered", "mean share": "mean_share", "IsoScore": "isoscore",
}  # fmt: skip
"""Columns of the whole embedding, and the fields of `metrics.Geometry` that they show."""
CALIBRATED = (*(f"calibrated PPL {column}" for column in ("total", "rare")), "calibrated E/O rare")
COMPARED = ("PPL total", *(f"PPL within {group}" for group in GROUPS), "E/O rare", "IsoScore", *CALIBRATED)
"""The columns by which models are compared. The others are changed by a constant on the logits of a group, by a shift
of all embeddings, or are of a kind that only some tables of the papers have."""


def perplexity(
    models: Mapping[str, EmbeddingSource],
    text: Text,
    *,
    calibrate: Text | None = None,
    groups: str = "types",
    device: str | None = None,
) -> Result:
    """Evaluates language models or translation models of fairseq, or language models of transformers, side by side.

    Tokens are frequent, medium or rare by their frequency in the training text. `COMPARED` are the columns by which
    models are compared; docs/evaluation.md and `agg-fairseq eval-lm --help` explain them.

    Args:
        models: by the names of their rows.
        text: to score, a `BinarizedText` for models of fairseq or a `PlainText` for those of transformers.
        calibrate: text of the same kind, on which one offset per group is fitted for the calibrated columns; None:
            there are none.
        groups: frequent, medium and rare tokens by one of `data.vocabulary.GROUPINGS`.
        device: cpu, cuda, cuda:1, …; None: a GPU if there is one.

    Returns:
        Result: a row per model, and the row `human` with the distinct targets and the E/O of the training frequencies.
        Details: `groups`, their sizes; `targets`, those scored, by group; `human_uniq`; `frequencies_over_observed`;
        and `checkpoints`, for each `name`, `path`, `embedding`, `perplexity`, `group_perplexity`, `within_perplexity`,
        `uniq`, `expected_over_observed` and `isotropy` by group, `geometry` as of `geometry_by_group`, `mean_cosine`,
        `tokens` (targets scored), `criterion` (the options that it was trained with), and with `calibrate` also
        `offsets` (nats), `calibrated_perplexity` and `calibrated_expected_over_observed` by group.

    Raises:
        UserError: the models cannot read the text, or not in the same way; an option is out of its range; the offsets
            cannot be fitted; a model is named `human`; the data is damaged.

    Reference: Yu et al. (2022), Tables 1–3.
    """
    check_row_names(models, HUMAN)
    vocabulary = text.load_vocabulary(models)
    with_matrix = {  # an adaptive softmax has no single output embedding
        name: model
        for name, model in models.items()
        if not isinstance(model, Checkpoint) or model.model_options.get("adaptive_softmax_cutoff") is None
    }
    for model in with_matrix.values():  # all of them before the first model is scored
        if not model.output_embedding.saved.any():
            raise UserError(f"{model}: found only zeros in {model.output_embedding.name}; expected a trained model")
    members, torch_device = vocabulary.groups(groups), find_device(device)
    for part in dict.fromkeys([text, calibrate or text]):
        part.check(vocabulary)

    evaluated: list[dict[str, Any]] = []
    rows: dict[Row, dict[str, Value]] = {}
    for name, model in models.items():
        offsets = None
        if calibrate is not None:
            chunks = calibrate.score(models, name, vocabulary, torch_device)
            fitted_on = NextTokenStatistics.of(chunks, members, keep_positions=True)
            try:
                offsets = fitted_on.fit_offsets()
            except ValueError as error:
                raise UserError(f"--calibrate {calibrate.name}: {model}: {error}") from error
        chunks = text.score(models, name, vocabulary, torch_device)
        statistics = NextTokenStatistics.of(chunks, members, offsets=offsets)
        embedding = model.output_embedding if name in with_matrix else None
        geometry = {column: dict.fromkeys(Geometry._fields) for column in COLUMNS}
        if embedding is not None:
            geometry = geometry_by_group(embedding.weight, {group: members.members(group) for group in GROUPS})
        values: dict[str, Any] = {
            "path": str(model),
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
            "criterion": model.criterion_options if isinstance(model, Checkpoint) else {},
        }
        titles = {
            "PPL": "perplexity", "PPL group": "group_perplexity", "PPL within": "within_perplexity", "Uniq": "uniq",
            "I(W)": "isotropy",
        }  # fmt: skip
        row = {f"{title} {column}": values[measure][column] for title, measure in titles.items() for column in COLUMNS}
        row |= {title: geometry["total"][measure] for title, measure in TOTALS.items()}
        row["E/O rare"] = values["expected_over_observed"]["rare"]
        if offsets is not None:
            values["offsets"] = dict(zip(GROUPS, offsets.tolist(), strict=True))
            values["calibrated_perplexity"] = statistics.calibrated_perplexity()
            values["calibrated_expected_over_observed"] = statistics.calibrated_expected_over_observed()
            row |= {f"calibrated PPL {column}": values["calibrated_perplexity"][column] for column in ("total", "rare")}
            row["calibrated E/O rare"] = values["calibrated_expected_over_observed"]["rare"]
        evaluated.append({"name": name, **values})
        rows[name] = row
    human, targets = statistics.unique_targets(), statistics.targets()  # the same with each model
    reference = statistics.frequencies_over_observed(vocabulary.counts)
    rows[HUMAN] = {f"Uniq {column}": human[column] for column in COLUMNS} | {"E/O rare": reference["rare"]}
    shares = ",".join(f"{group}={targets[group] / targets['total']:.1%}" for group in GROUPS)
    return Result.of(
        rows,
        signature(
            f"split:{text.name}",
            f"targets:{targets['total']},{shares}",
            *text.signature(models, vocabulary),
            None if calibrate is None else f"calibrated-on:{calibrate.name}",
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
