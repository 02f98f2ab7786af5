"""Isotropy of the output embeddings of models."""

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from .. import metrics
from ..checkpoints import EmbeddingSource, Models
from ..columns import EMBEDDINGS, add_groups
from ..names import GROUPS
from ..result import Result
from .inputs import frequency_settings, load_vocabulary, matrix_setting


def isotropy(
    models: Models,
    data: str | Path | None = None,
    *,
    train_text: str | Path | None = None,
    groups: str = "types",
) -> Result:
    """Measures how evenly the output embeddings of models are distributed over all directions."""
    if data is None and train_text is None:
        sizes, members = None, dict.fromkeys(GROUPS, torch.zeros(0, dtype=torch.int64))
    else:
        by_frequency = load_vocabulary(models, data, train_text).groups(groups)
        sizes, members = by_frequency.sizes(), by_frequency.all_members()
    rows = {}
    for name, model in tqdm(models.items(), "isotropy", leave=False, disable=None):
        embedding = model.output_embedding
        weight = embedding.weight
        cosine = metrics.mean_cross_cosine(weight[members["rare"]], weight[members["frequent"]])
        measured = geometry_by_group(model, members)
        singular_values = embedding.embeddings.singular_values().tolist()
        last, shown = len(singular_values) - 1, {}
        places = (1, 9, (last + 1) // 2, last)
        for key, at in zip(EMBEDDINGS["singular_value"], places, strict=True):
            shown[key] = singular_values[at] if at <= last else None
        rows[name] = {
            "path": str(model),
            "matrix": embedding.description,
            "rows": len(weight),
            **measured,
            "isotropy_both_signs": embedding.embeddings.isotropy_both_signs(),
            "rare_frequent_cosine": None if math.isnan(cosine) else cosine,
            "singular_value": shown,
            "singular_values": singular_values,
        }
    numbers = dict.fromkeys(str(row["rows"]) for row in rows.values())
    settings = {
        "matrix": matrix_setting(models),
        "rows": ",".join([*numbers, "specials-included"]),
        "isotropy": "eigenvectors-of-WtW,float64",
        **frequency_settings(data, train_text, groups),
    }
    return Result(rows, add_groups(EMBEDDINGS, tuple(members)), settings, {"groups": sizes})


def geometry_by_group(
    model: EmbeddingSource, members: Mapping[str, Tensor]
) -> dict[str, dict[str, float | None]]:
    """`metrics.Geometry` of the output embedding, centered at its mean row: each field by group and
    as `total`, None where it is not defined."""
    weight, embeddings = model.output_embedding.weight, model.output_embedding.embeddings
    fields = {name: {} for name in metrics.Geometry._fields}
    for group in (*members, "total"):
        measured = {}
        if group == "total":
            measured = embeddings.geometry()._asdict()
        elif len(rows := weight[members[group]]):
            measured = metrics.geometry(rows, center=embeddings.mean)._asdict()
        for name, values in fields.items():
            value = measured.get(name, math.nan)
            values[group] = None if math.isnan(value) else value
    return fields
