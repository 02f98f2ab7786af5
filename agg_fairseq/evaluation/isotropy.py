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
    """Measures how evenly the output embeddings of models are distributed over all directions.

    All values are computed in float64 over all rows of the embedding W, including those of special tokens, which are in
    no group. μ is the mean row of W. With frequencies, the first three are also measured for the rows of each group;
    for a translation model, frequencies are those of the target side.

    I(W)        isotropy: 1 is isotropic, 0 is degenerate. It is computed from the eigenvectors of WᵀW, each of which
                has two directions. I(W) uses the one that the linear-algebra library returns, and I(W) ± uses both, so
                that it is the same on every machine.
    S(W)        mean cosine between two embeddings: 0 is isotropic, 1 is degenerate.
    I(W−μ)      I and S after the mean row has been subtracted from each row. A shift of all rows of an untied output
    S(W−μ)      embedding changes no probability, but it can change I(W) and S(W) completely.
    mean share  ‖μ‖ / mean ‖w‖: 0 if the rows cancel each other, 1 if all point in the same direction.
    IsoScore    share of the dimensions that the rows use evenly (Rudman et al. 2022): 1 is isotropic, 0 means that all
                rows differ along one line at most. It depends neither on the mean row nor on the scale of W.

    μ is that of the whole matrix also for I(W−μ) and S(W−μ) of a group; the mean share and IsoScore of a group are of
    its own mean. cos(rare, frequent) is the mean cosine between a rare and a frequent embedding. The last columns are
    singular values divided by the largest: the second, the tenth, the median and the smallest.

        agg-fairseq isotropy runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2
        agg-fairseq isotropy models/gpt2 --text wiki.train.tokens

    Args:
        checkpoints: models of fairseq or of transformers, by the names of their rows.
        data: folder written by `fairseq-preprocess`, with the training split, in which the frequencies are counted.
        text: for models of transformers, a text in UTF-8, in which they are counted, instead of `data`. Without either,
            what is measured by group is left out.
        groups: frequent, medium and rare tokens by one of `data.vocabulary.GROUPINGS`.

    Returns:
        Result: a row per checkpoint. Details: `groups`, their sizes or None; `checkpoints`, for each `name`, `path`,
        `matrix`, `rows` (V), `geometry` as of `geometry_by_group`, `isotropy` by group, `isotropy_both_signs`,
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
        ends = [weight[members.get(group, [])] for group in ("rare", "frequent")]
        cosine = metrics.mean_cosine_between(*ends)
        singular_values = metrics.singular_values(weight).tolist()
        found = {
            "path": str(checkpoint),
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
            f"matrix:{matrix_signature(checkpoints)}",
            f"rows:{','.join(sizes_of_rows)},specials-included",
            "isotropy:eigenvectors-of-WtW,float64",
            *frequencies_signature(data, text, groups),
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
