"""Draws the papers' pictures of token embeddings; the ending of --output chooses PNG, SVG or PDF.

agg-fairseq plot projection runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin -o svd.png
agg-fairseq plot singular-values runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt -o values.svg
agg-fairseq plot rare-tokens runs/agg/train.log -o rare.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torch import Tensor

from ..errors import UserError
from ..files import write_whole
from ..metrics import principal_projection, singular_values
from ..metrics.groups import GROUPS
from .embeddings import add_grouping, load_all, load_embeddings
from .naming import names_of
from .training_log import read_log

ENDINGS = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A picture each."""
    pictures = parser.add_subparsers(dest="picture", required=True, metavar="PICTURE")
    projection = _add_picture(
        pictures, "projection", "SVD projection of the output embeddings, coloured by frequency group", "CKPT"
    )
    projection.add_argument("--data", required=True, help="folder written by fairseq-preprocess, for the frequencies")
    add_grouping(projection)
    _add_picture(pictures, "singular-values", "singular values of the output embeddings, largest = 1", "CKPT")
    _add_picture(pictures, "rare-tokens", "size of the rare group over the updates", "LOG")


def _add_picture(
    pictures: argparse._SubParsersAction, name: str, summary: str, argument: str
) -> argparse.ArgumentParser:
    parser = pictures.add_parser(name, help=summary, description=summary)
    parser.add_argument("inputs", nargs="+", metavar=argument)
    parser.add_argument("--name", nargs="+", help="a name per input (default: its folder)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="picture to write: .png, .svg or .pdf")
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Draws the picture and writes it whole."""
    output = Path(arguments.output)
    if output.suffix.lower() not in ENDINGS:
        raise UserError(f"--output: found {output.name!r}; expected a name ending in {', '.join(ENDINGS)}")
    try:
        from . import figures
    except ImportError as error:
        raise UserError("plot: matplotlib is missing; pip install 'agg-fairseq[eval]'") from error
    names = names_of(arguments.inputs, arguments.name)
    if arguments.picture == "projection":
        figure = figures.projection(_projections(names, arguments))
    elif arguments.picture == "singular-values":
        embeddings = (load_embeddings(path).weight for path in arguments.inputs)
        figure = figures.singular_values(dict(zip(names, map(singular_values, embeddings), strict=True)))
    else:
        figure = figures.rare_tokens(dict(zip(names, map(_rare_tokens, arguments.inputs), strict=True)))
    write_whole(output, lambda temporary: figures.save(figure, temporary))
    print(output)


def _projections(names: list[str], arguments: argparse.Namespace) -> dict[str, dict[str, Tensor]]:
    embeddings, vocabulary = load_all(arguments.inputs, arguments.data)
    groups = vocabulary.groups(arguments.groups)
    panels = {}
    for name, one in zip(names, embeddings, strict=True):
        points = principal_projection(one.weight)
        panels[name] = {group: points[groups.members(group)] for group in GROUPS}
    return panels


def _rare_tokens(path: str) -> tuple[list[float], list[float]]:
    entries = [entry for entry in read_log(path) if "rare_tokens" in entry]
    if not entries:
        raise UserError(f"{path}: found no rare_tokens in it; expected the log of a run with --criterion agg")
    return [entry["num_updates"] for entry in entries], [entry["rare_tokens"] for entry in entries]
