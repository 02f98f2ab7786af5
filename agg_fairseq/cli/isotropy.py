"""Measures how evenly the output embeddings of checkpoints point in all directions.

`I(W)` is the isotropy of all embeddings and, with --data, of each frequency group by itself (1 is isotropic), over the
eigenvectors of WᵀW with the signs that the solver gives them; `I(W) ±`, over both signs of each, is the number that two
machines agree on. `S(W)` is the mean cosine between two embeddings (0 is isotropic), `cos(rare, frequent)` that between
a rare and a frequent one. The last columns are singular values as a share of the largest: the second, the tenth, the
median one and the smallest. All in float64, over all rows, those of special tokens included; these are in no group. Of
a language model or a translation model, whose frequencies are those of the target side. All singular values are in
--json.

    agg-fairseq isotropy runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass

from torch import Tensor
from tqdm import tqdm

from .. import __version__
from ..errors import UserError
from ..metrics import FrequencyGroups, isotropy, mean_cosine, mean_cosine_between, singular_values
from ..metrics.groups import GROUPS
from .embeddings import GROUPINGS, Embeddings, add_grouping, load_all, load_embeddings
from .measured import Measured, measure_and_show
from .naming import names_of
from .table import number

COLUMNS = (*GROUPS, "total")
SHOWN_VALUES = ("σ2", "σ10", "median σ", "smallest σ")


@dataclass(frozen=True)
class Shape:
    """The numbers of one checkpoint; None where they need a group that is not known or is empty."""

    path: str
    matrix: str
    rows: int
    isotropy: dict[str, float | None]
    isotropy_both_signs: float
    mean_cosine: float
    rare_frequent_cosine: float | None
    singular_values: list[float]
    """D of them, largest first, divided by the largest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("inputs", nargs="+", metavar="CKPT", help="checkpoints, compared side by side")
    parser.add_argument("--name", nargs="+", metavar="NAME", help="a name per checkpoint (default: its folder)")
    parser.add_argument(
        "--data", metavar="DATA", help="folder written by fairseq-preprocess, with the training split, for the groups"
    )
    add_grouping(parser)
    parser.add_argument("--json", metavar="FILE", help="also write all numbers to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Measures every checkpoint, prints the table and writes the JSON file."""
    measure_and_show(measure, arguments, [*arguments.inputs, *filter(None, [arguments.data])])


def measure(arguments: argparse.Namespace) -> Measured:
    """Measures every checkpoint."""
    names = names_of(arguments.inputs, arguments.name)
    if arguments.data is None:
        embeddings, groups = [load_embeddings(path) for path in arguments.inputs], None
    else:
        embeddings, vocabulary = load_all(arguments.inputs, arguments.data)
        groups = vocabulary.groups(arguments.groups)
    progress = tqdm(embeddings, desc="isotropy", unit="checkpoint", disable=None, leave=False)
    shapes = [_shape(one, groups) for one in progress]
    return Measured(
        header=["", *(f"I(W) {column}" for column in COLUMNS), "I(W) ±", "S(W)", "cos(rare, frequent)", *SHOWN_VALUES],
        rows=[[name, *_cells(shape)] for name, shape in zip(names, shapes, strict=True)],
        signature=_signature(embeddings, groups, arguments.groups),
        values={
            "groups": groups and groups.sizes(),
            "checkpoints": [{"name": name, **asdict(shape)} for name, shape in zip(names, shapes, strict=True)],
        },
    )


def _shape(embeddings: Embeddings, groups: FrequencyGroups | None) -> Shape:
    weight = embeddings.weight
    if not weight.any():
        raise UserError(f"{embeddings.path}: found only zeros in {embeddings.parameter}; expected a trained model")
    members: dict[str, Tensor] = {} if groups is None else {name: weight[groups.members(name)] for name in GROUPS}
    by_group = {name: isotropy(members[name]) if len(members.get(name, ())) else None for name in GROUPS}
    both = [members[name] for name in ("rare", "frequent") if name in members and members[name].any()]
    return Shape(
        path=embeddings.path,
        matrix=embeddings.matrix,
        rows=len(weight),
        isotropy=by_group | {"total": isotropy(weight)},
        isotropy_both_signs=isotropy(weight, both_signs=True),
        mean_cosine=mean_cosine(weight),
        rare_frequent_cosine=mean_cosine_between(*both) if len(both) == 2 else None,
        singular_values=singular_values(weight).tolist(),
    )


def _cells(shape: Shape) -> list[str | None]:
    values = shape.singular_values
    indices = (1, 9, len(values) // 2, len(values) - 1)
    shown = [number(values[index], 3) if index < len(values) else None for index in indices]
    by_group = [number(shape.isotropy[column], 3) for column in COLUMNS]
    by_group.append(number(shape.isotropy_both_signs, 3))
    return [*by_group, number(shape.mean_cosine, 3), number(shape.rare_frequent_cosine, 3), *shown]


def _signature(embeddings: list[Embeddings], groups: FrequencyGroups | None, grouping: str) -> str:
    """Every choice that moves a number."""
    return "|".join(
        [
            f"matrix:{','.join(dict.fromkeys(one.matrix for one in embeddings))}",
            f"rows:{','.join(dict.fromkeys(str(len(one.weight)) for one in embeddings))},specials-included",
            "isotropy:eigenvectors-of-WtW,float64",
            *([] if groups is None else [f"groups:{GROUPINGS[grouping]}"]),
            f"version:{__version__}",
        ]
    )
