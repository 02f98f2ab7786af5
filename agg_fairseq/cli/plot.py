"""Draws the papers' pictures; the ending of -o chooses PNG, SVG or PDF.

    agg-fairseq plot projection runs/mle runs/agg --data data-bin -o svd.png
    agg-fairseq plot isotropy runs/mle runs/agg --data data-bin -o isotropy.svg
    agg-fairseq plot rare-tokens runs/agg/train.log -o rare.png
    agg-fairseq plot alpha-sweep eval-lm.json -o sweep.pdf
    agg-fairseq plot class-sweep text-metrics.json -o classes.svg

Every picture has its own --help: agg-fairseq plot projection --help.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path

from .. import plots
from ..checkpoints.fairseq_checkpoint import Checkpoint, checkpoints_of_run
from ..errors import UserError
from ..files import atomic_write
from ..result import Result
from .options import add_inputs, add_models, add_option, add_parameters, call, files_by_name

ENDINGS = (".png", ".svg", ".pdf")
INPUTS = {
    "RUN": "folders of runs that saved several checkpoints: --save-interval-updates N "
    "--keep-interval-updates -1",
    "LOG": "logs of runs, which fairseq-train --log-format json --log-file LOG writes",
    "DATA": "folders written by fairseq-preprocess, with the training split",
    "EVAL.json": "files that agg-fairseq eval-lm --json wrote",
    "METRICS.json": "files that agg-fairseq text-metrics --json wrote",
}
"""The kinds of inputs except MODEL."""
PICTURES: dict[str, tuple[Callable[..., plots.style.Figure], str]] = {
    "projection": (plots.projection, "MODEL"),
    "singular-values": (plots.singular_values, "MODEL"),
    "isotropy": (plots.isotropy_over_updates, "RUN"),
    "inner-products": (plots.inner_products_over_updates, "RUN"),
    "rare-tokens": (plots.rare_tokens, "LOG"),
    "learning-curves": (plots.learning_curves, "LOG"),
    "alpha-sweep": (plots.alpha_sweep, "EVAL.json"),
    "similarity": (plots.similarity, "MODEL"),
    "frequencies": (plots.frequencies, "DATA"),
    "token-shares": (plots.token_shares, "METRICS.json"),
    "class-sweep": (plots.class_sweep, "METRICS.json"),
}
"""The function that draws each picture, and what from; its other parameters are the options."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pictures = parser.add_subparsers(dest="picture", required=True, metavar="PICTURE")
    for name, (function, metavar) in PICTURES.items():
        about = inspect.getdoc(function).partition("\n\nArgs:")[0]
        summary = " ".join(about.partition("\n\n")[0].split())
        picture = pictures.add_parser(
            name, help=summary, description=about, formatter_class=parser.formatter_class
        )
        if metavar == "MODEL":
            add_models(picture)
        elif metavar.endswith(".json"):  # which has names
            picture.add_argument("inputs", nargs="+", metavar=metavar, help=INPUTS[metavar])
            picture.set_defaults(
                opened=lambda arguments: {path: Result.read(path) for path in arguments.inputs}
            )
        else:
            add_inputs(picture, metavar, INPUTS[metavar], "folder" if metavar == "LOG" else "name")
        if metavar == "RUN":
            picture.set_defaults(opened=checkpoints_by_run)
        add_parameters(picture, function)
        add_option(picture, "output", f"picture to write: {', '.join(ENDINGS)}", required=True)


def run(arguments: argparse.Namespace) -> None:
    output = Path(arguments.output)
    if output.suffix.lower() not in ENDINGS:
        raise UserError(
            f"--output: found {output.name!r}; expected a name ending in {', '.join(ENDINGS)}"
        )
    figure = call(PICTURES[arguments.picture][0], arguments)
    atomic_write(output, lambda temporary: plots.save(figure, temporary, output.suffix[1:].lower()))
    print(output)


def checkpoints_by_run(arguments: argparse.Namespace) -> dict[str, list[Checkpoint]]:
    return {name: checkpoints_of_run(folder) for name, folder in files_by_name(arguments).items()}
