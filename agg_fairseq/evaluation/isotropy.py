"""How evenly the output embeddings of checkpoints point in all directions."""

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
    checkpoints: Mapping[str, EmbeddingSource],
    data: str | Path | None = None,
    *,
    text: str | Path | None = None,
    groups: str = "types",
) -> Result:
    """Isotropy, mean cosines and singular values of output embeddings, in float64, over all rows.

    I(W) is the isotropy (1 is isotropic), with each eigenvector of WᵀW in the direction that the solver returns; I(W) ±
    takes both directions of each, so that it does not depend on the solver. S(W) is the mean cosine between two
    embeddings (0 is isotropic). I(W−μ) and S(W−μ) are the same after the mean row μ of W has been subtracted, the mean
    share is ‖μ‖ / mean ‖w‖, and IsoScore is the share of the dimensions that the rows use evenly. The rows of special
    tokens are included in W and in μ, and are in no group. μ is that of the whole matrix also for I(W−μ) and S(W−μ) of
    a group; the mean share and IsoScore of a group are of its own mean.

    Args:
        checkpoints: language models or translation models of fairseq, or models of transformers, by the names of their
            rows.
        data: folder written by `fairseq-preprocess`, with the training split, which the groups are formed by. For a
            translation model, the frequencies are those of the target side.
        text: for models of transformers, a text in UTF-8, in which their tokens are counted, instead of `data`. Without
            either, what is measured by group is left out.
        groups: frequent, medium and rare tokens by one of `data.vocabulary.GROUPINGS`.

    Returns:
        Result: a row per checkpoint. The last columns are the second, the tenth, the median and the smallest singular
        value as a share of the largest. Details: `groups`, their sizes or None; and `checkpoints`, for each `name`,
        `path`, `matrix`, `rows` (V), `geometry` as of `geometry_by_group`, `isotropy` by group, `isotropy_both_signs`,
        `mean_cosine`, `rare_frequent_cosine` (the mean cosine between a rare and a frequent embedding) and
        `singular_values` (D, largest first, divided by the largest). A number is None if it needs a group that is empty
        or not known.

    Raises:
        UserError: a model has no output embedding, or one of zeros; with `data` or `text`, as
            `load_embedding_vocabulary`.

    Reference: Yu et al. (2022), Eq. 3, Tables 10 and 11; Gao et al. (2019), Fig. 2b; Rudman et al. (2022).
    """
    if data is None and text is None:
        sizes, members = None, {}
        for checkpoint in checkpoints.values():
            checkpoint.output_embedding  # noqa: B018 — all files are looked at before the first is measured
    else:
        by_frequency = load_embedding_vocabulary(checkpoints, data, text).groups(groups)
        sizes, members = by_frequency.sizes(), {group: by_frequency.members(group) for group in GROUPS}
    details, rows = [], {}
    for name, checkpoint in tqdm(checkpoints.items(), desc="isotropy", unit="checkpoint", disable=None, leave=False):
        embedding = checkpoint.output_embedding
        weight = embedding.weight
        if not weight.any():
            raise UserError(f"{checkpoint}: found only zeros in {embedding.name}; expected a trained model")
        geometry = geometry_by_group(weight, members)
        ends = [weight[members[group]] for group in ("rare", "frequent") if group in members]
        has_ends = len(ends) == 2 and all(rows.any() for rows in ends)  # a group that is empty has no direction
        singular_values = metrics.singular_values(weight).tolist()
        found = {
            "path": str(checkpoint),
            "matrix": embedding.description,
            "rows": len(weight),
            "geometry": geometry,
            "isotropy": {column: geometry[column]["isotropy"] for column in COLUMNS},
            "isotropy_both_signs": metrics.isotropy(weight, both_signs=True),
            "mean_cosine": geometry["total"]["mean_cosine"],
            "rare_frequent_cosine": metrics.mean_cosine_between(*ends) if has_ends else None,
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
            f"matrix:{matrix_signature(checkpoints)}",
            f"rows:{','.join(sizes_of_rows)},specials-included",
            "isotropy:eigenvectors-of-WtW,float64",
            *frequencies_signature(data, text, groups),
        ),
        {"groups": sizes, "checkpoints": details},
    )


def geometry_by_group(weight: Tensor, members: Mapping[str, Tensor]) -> dict[str, dict[str, float | None]]:
    """`metrics.geometry` of the rows (V, D) of each group, centered at the mean row of all, and of all as `total`.

    Args:
        weight: (V, D).
        members: the tokens of each of `GROUPS`; a group may be missing.

    Returns:
        For each of `COLUMNS` the fields of `metrics.Geometry`; None where one is not defined, as those of no rows.
    """
    center, found = metrics.mean_row(weight), {}
    for column in COLUMNS:
        rows = weight if column == "total" else weight[members[column]] if column in members else weight[:0]
        measured = metrics.geometry(rows, center=center)._asdict() if len(rows) else {}
        values = {name: measured.get(name, math.nan) for name in metrics.Geometry._fields}
        found[column] = {name: None if math.isnan(value) else value for name, value in values.items()}
    return found
