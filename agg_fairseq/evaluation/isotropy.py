"""How evenly the output embeddings of models point in all directions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor
from tqdm import tqdm

from .. import metrics
from ..checkpoints.opening import EmbeddingSource
from ..errors import UserError
from ..metrics.groups import GROUPS
from ..result import Result, signature
from .inputs import frequencies_signature, load_embedding_vocabulary, matrix_signature

COLUMNS = (*GROUPS, "total")
BY_GROUP = {"I(W)": "isotropy", "I(W−μ)": "isotropy_centered", "IsoScore": "isoscore"}
"""The fields of `metrics.Geometry` that the table has for each group, by their titles."""
TOTALS = {"S(W)": "mean_cosine", "S(W−μ)": "mean_cosine_centered", "mean share": "mean_share"}
"""Those that it has for the whole matrix."""


def isotropy(
    models: Mapping[str, EmbeddingSource],
    data: str | Path | None = None,
    *,
    train_text: str | Path | None = None,
    groups: str = "types",
) -> Result:
    """Measures how evenly the output embeddings of models are distributed over all directions.

    All values are computed in float64 over all rows of the embedding W, including those of special tokens, which are in
    no group. With frequencies, some are also measured for the rows of each group. `agg-fairseq isotropy --help`
    explains the columns.

    Args:
        models: models of fairseq or of transformers, by the names of their rows.
        data: folder written by `fairseq-preprocess`, with the training split, in which the frequencies are counted.
        train_text: for models of transformers, a text in UTF-8, in which they are counted, instead of `data`. Without
            either, what is measured by group is left out.
        groups: frequent, medium and rare tokens by one of `data.vocabulary.GROUPINGS`.

    Returns:
        Result: a row per model. Details: `groups`, their sizes or None; `checkpoints`, for each `name`, `path`,
        `matrix`, `rows` (V), `geometry` as of `geometry_by_group`, `isotropy` by group, `isotropy_both_signs`,
        `mean_cosine`, `rare_frequent_cosine` (the mean cosine between a rare and a frequent embedding) and
        `singular_values` (D, largest first, divided by the largest). A number is None if it needs a group that is empty
        or not known.

    Raises:
        UserError: a model has no output embedding, or one of zeros; with `data` or `train_text`, as
            `load_embedding_vocabulary`.

    Reference: Yu et al. (2022), Eq. 3, Tables 10 and 11; Gao et al. (2019), Fig. 2b; Rudman et al. (2022).
    """
    if data is None and train_text is None:
        sizes, members = None, {}
        for model in models.values():
            model.output_embedding  # noqa: B018 — all files are looked at before the first is measured
    else:
        by_frequency = load_embedding_vocabulary(models, data, train_text).groups(groups)
        sizes, members = by_frequency.sizes(), {group: by_frequency.members(group) for group in GROUPS}
    details, rows = [], {}
    for name, model in tqdm(models.items(), desc="isotropy", unit="checkpoint", disable=None, leave=False):
        embedding = model.output_embedding
        weight = embedding.weight
        if not weight.any():
            raise UserError(f"{model}: found only zeros in {embedding.name}; expected a trained model")
        geometry = geometry_by_group(weight, members)
        ends = [weight[members.get(group, [])] for group in ("rare", "frequent")]
        cosine = metrics.mean_cosine_between(*ends)
        singular_values = metrics.singular_values(weight).tolist()
        found = {
            "path": str(model),
            "matrix": embedding.description,
            "rows": len(weight),
            "geometry": geometry,
            "isotropy": {column: geometry[column]["isotropy"] for column in COLUMNS},
            "isotropy_both_signs": metrics.isotropy(weight, both_signs=True),
            "mean_cosine": geometry["total"]["mean_cosine"],
            "rare_frequent_cosine": None if math.isnan(cosine) else cosine,
            "singular_values": singular_values,
        }
        details.append({"name": name, **found})
        shown = {"σ2": 1, "σ10": 9, "median σ": len(singular_values) // 2, "smallest σ": len(singular_values) - 1}
        rows[name] = {
            **{f"{title} {group}": geometry[group][field] for title, field in BY_GROUP.items() for group in COLUMNS},
            **{title: geometry["total"][field] for title, field in TOTALS.items()},
            "I(W) ±": found["isotropy_both_signs"],
            "cos(rare, frequent)": found["rare_frequent_cosine"],
            **{title: dict(enumerate(singular_values)).get(index) for title, index in shown.items()},
        }
    sizes_of_rows = dict.fromkeys(str(one["rows"]) for one in details)
    return Result.of(
        rows,
        signature(
            f"matrix:{matrix_signature(models)}",
            f"rows:{','.join(sizes_of_rows)},specials-included",
            "isotropy:eigenvectors-of-WtW,float64",
            *frequencies_signature(data, train_text, groups),
        ),
        {"groups": sizes, "checkpoints": details},
    )


def geometry_by_group(weight: Tensor, members: Mapping[str, Tensor]) -> dict[str, dict[str, float | None]]:
    """`metrics.geometry` of the rows (V, D) of each group, centered at the mean row of all, and of all as `total`.

    For each of `COLUMNS`, of which `members` may lack groups, the fields of `metrics.Geometry`; None where one is not
    defined, as those of no rows.
    """
    center, found = metrics.mean_row(weight), {}
    for column in COLUMNS:
        rows = weight if column == "total" else weight[members[column]] if column in members else weight[:0]
        measured = metrics.geometry(rows, center=center)._asdict() if len(rows) else {}
        values = {name: measured.get(name, math.nan) for name in metrics.Geometry._fields}
        found[column] = {name: None if math.isnan(value) else value for name, value in values.items()}
    return found
