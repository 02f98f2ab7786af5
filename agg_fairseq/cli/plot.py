"""Draws the papers' pictures; the ending of --output chooses PNG, SVG or PDF.

agg-fairseq plot projection runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin -o svd.png
agg-fairseq plot singular-values runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt -o values.svg
agg-fairseq plot isotropy runs/mle runs/agg --data data-bin -o isotropy.svg
agg-fairseq plot rare-tokens runs/agg/train.log -o rare.png
agg-fairseq plot alpha-sweep eval-lm.json -o sweep.pdf
agg-fairseq plot class-sweep text-metrics.json -o classes.svg

Every picture is readable in black and white, and has its own --help: agg-fairseq plot projection --help.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .. import plots
from ..checkpoints.fairseq_checkpoint import checkpoints_of_run
from ..checkpoints.opening import open_models
from ..errors import UserError
from ..files import atomic_write, check_writable, read_json_object
from ..names import unique_names
from .options import add_inputs, add_models, add_options, description, options_of

ENDINGS = (".png", ".svg", ".pdf")
INPUTS = {
    "RUN": "folders of runs with several checkpoints, which --save-interval-updates writes",
    "LOG": "logs of runs, which fairseq-train --log-format json --log-file LOG writes",
    "DATA": "folders written by fairseq-preprocess, with the training split",
    "EVAL.json": "files that agg-fairseq eval-lm --json wrote",
    "METRICS.json": "files that agg-fairseq text-metrics --json wrote",
}
"""The kinds of inputs except MODEL, and their help."""
NAMES = {"RUN": "that of its folder", "LOG": "that of its folder", "DATA": "its own"}
"""The default of --name, for inputs that have names; EVAL.json and METRICS.json contain names."""
PICTURES = {
    "projection": (plots.projection, "MODEL"),
    "singular-values": (plots.singular_values, "MODEL"),
    "isotropy": (plots.isotropy_over_updates, "RUN"),
    "inner-products": (plots.inner_products_over_updates, "RUN"),
    "rare-tokens": (plots.rare_tokens, "LOG"),
    "learning-curves": (plots.learning_curves, "LOG"),
    "alpha-sweep": (plots.alpha_sweep, "EVAL.json"),
    "similarity": (plots.similarity, "MODEL"),
    "under-trained": (plots.under_trained, "MODEL"),
    "frequencies": (plots.frequencies, "DATA"),
    "token-shares": (plots.token_shares, "METRICS.json"),
    "class-sweep": (plots.class_sweep, "METRICS.json"),
}
"""The function that draws each picture, and what it is drawn from."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds a sub-command for each picture, described by the docstring of the function that draws it."""
    pictures = parser.add_subparsers(dest="picture", required=True, metavar="PICTURE")
    for name, (function, metavar) in PICTURES.items():
        about = description(function)
        one = pictures.add_parser(name, help=about.partition("\n")[0], description=about)
        if metavar == "MODEL":
            add_models(one)
        elif metavar in NAMES:
            add_inputs(one, metavar, INPUTS[metavar], NAMES[metavar])
        else:
            one.add_argument("inputs", nargs="+", metavar=metavar, help=INPUTS[metavar])
        add_options(one, function)
        one.add_argument("-o", "--output", required=True, metavar="FILE", help=f"picture: {', '.join(ENDINGS)}")


def run(arguments: argparse.Namespace) -> None:
    """Draws the picture and writes it whole."""
    output = Path(arguments.output)
    if output.suffix.lower() not in ENDINGS:
        raise UserError(f"--output: found {output.name!r}; expected a name ending in {', '.join(ENDINGS)}")
    check_writable(output)
    figure = draw(arguments)
    atomic_write(output, lambda temporary: plots.save(figure, temporary, output.suffix[1:].lower()))
    print(output)


def draw(arguments: argparse.Namespace) -> plots.style.Figure:
    """Draws the picture that the options ask for."""
    (function, kind), paths = PICTURES[arguments.picture], arguments.inputs
    if kind == "MODEL":
        inputs: dict[str, Any] = open_models(paths, arguments.name, arguments.matrix)
    elif kind in NAMES:
        names = unique_names(paths, arguments.name, "folder" if kind == "LOG" else "name")
        inputs = dict(zip(names, map(checkpoints_of_run if kind == "RUN" else Path, paths), strict=True))
    else:
        command = "eval-lm" if kind == "EVAL.json" else "text-metrics"
        inputs = {path: read_json_object(path, f"a file of agg-fairseq {command} --json") for path in paths}
    return function(inputs, **options_of(function, arguments))
