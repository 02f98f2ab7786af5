"""Draws the papers' pictures; the ending of --output chooses PNG, SVG or PDF.

agg-fairseq plot projection runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin -o svd.png
agg-fairseq plot singular-values runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt -o values.svg
agg-fairseq plot isotropy runs/mle runs/agg --data data-bin -o isotropy.svg
agg-fairseq plot rare-tokens runs/agg/train.log -o rare.png
agg-fairseq plot alpha-sweep eval-lm.json -o sweep.pdf
agg-fairseq plot class-sweep text-metrics.json -o classes.svg

All can be read without colour. Each picture has a --help of its own.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType

from ..errors import UserError
from ..files import check_writable, write_whole
from .pictures import (
    alpha_sweep,
    class_sweep,
    frequencies,
    inner_products,
    isotropy,
    learning_curves,
    projection,
    rare_tokens,
    similarity,
    singular_values,
    style,
    token_shares,
)

ENDINGS = (".png", ".svg", ".pdf")
PICTURES: dict[str, ModuleType] = {
    "projection": projection,
    "singular-values": singular_values,
    "isotropy": isotropy,
    "inner-products": inner_products,
    "rare-tokens": rare_tokens,
    "learning-curves": learning_curves,
    "alpha-sweep": alpha_sweep,
    "similarity": similarity,
    "frequencies": frequencies,
    "token-shares": token_shares,
    "class-sweep": class_sweep,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A picture each."""
    pictures = parser.add_subparsers(dest="picture", required=True, metavar="PICTURE")
    for name, module in PICTURES.items():
        picture = pictures.add_parser(name, help=module.SUMMARY, description=module.__doc__)
        add_options(picture, module)
        picture.add_argument("-o", "--output", required=True, metavar="FILE", help=f"picture: {', '.join(ENDINGS)}")


def add_options(parser: argparse.ArgumentParser, module: ModuleType) -> None:
    """What a picture is drawn from."""
    parser.add_argument("inputs", nargs="+", metavar=module.INPUT)
    if module.NAMED:
        parser.add_argument("--name", nargs="+", help="a name per input (default: its folder)")
    module.add_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Draws the picture and writes it whole."""
    output = Path(arguments.output)
    if output.suffix.lower() not in ENDINGS:
        raise UserError(f"--output: found {output.name!r}; expected a name ending in {', '.join(ENDINGS)}")
    check_writable(output)
    figure = PICTURES[arguments.picture].draw(arguments)
    write_whole(output, lambda temporary: style.save(figure, temporary, output.suffix[1:].lower()))
    print(output)
