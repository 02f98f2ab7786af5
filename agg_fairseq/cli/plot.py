"""Draws the papers' pictures; the ending of -o chooses PNG, SVG or PDF.

    agg-fairseq plot projection runs/mle runs/agg --data data-bin -o svd.png
    agg-fairseq plot isotropy runs/mle runs/agg --data data-bin -o isotropy.svg
    agg-fairseq plot rare-tokens runs/agg/train.log -o rare.png
    agg-fairseq plot alpha-sweep eval-lm.json -o sweep.pdf
    agg-fairseq plot class-sweep text-metrics.json -o classes.svg

Every picture has its own --help: agg-fairseq plot projection --help.
"""

import argparse
import ast
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import atomic_write
from ..result import Result
from .options import MODELS, Files, Function, add_option, add_parameters, call

ENDINGS = (".png", ".svg", ".pdf")


class Runs(Files):
    """Folders of runs, all of whose checkpoints are measured."""

    def open(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """The checkpoints of each run, by its name."""
        from ..checkpoints.fairseq_checkpoint import checkpoints_of_run

        return {name: checkpoints_of_run(run) for name, run in super().open(arguments).items()}


class Results(Files):
    """What other commands wrote to --json, whose rows have names."""

    def open(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """The results, by their paths."""
        return {path: Result.read(path) for path in arguments.inputs}


SAVED = "folders of runs that saved several checkpoints: --save-interval-updates N --keep-interval-updates -1"
RUNS = Runs("RUN", SAVED, "name")
LOGS = Files("LOG", "logs of runs, which fairseq-train --log-format json --log-file LOG writes")
DATA = Files("DATA", "folders written by fairseq-preprocess, with the training split", "name")
EVALUATIONS = Results("EVAL.json", "files that agg-fairseq eval-lm --json wrote", "")
TEXT_METRICS = Results("METRICS.json", "files that agg-fairseq text-metrics --json wrote", "")
PICTURES = {
    "projection": ("embeddings", "projection", MODELS),
    "singular-values": ("embeddings", "singular_values", MODELS),
    "isotropy": ("over_updates", "isotropy_over_updates", RUNS),
    "inner-products": ("over_updates", "inner_products_over_updates", RUNS),
    "rare-tokens": ("over_updates", "rare_tokens", LOGS),
    "learning-curves": ("over_updates", "learning_curves", LOGS),
    "alpha-sweep": ("evaluations", "alpha_sweep", EVALUATIONS),
    "similarity": ("embeddings", "similarity", MODELS),
    "frequencies": ("evaluations", "frequencies", DATA),
    "token-shares": ("evaluations", "token_shares", TEXT_METRICS),
    "class-sweep": ("evaluations", "class_sweep", TEXT_METRICS),
}
"""The function of `plots` that draws each picture, and what from; its other parameters are the
options."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pictures = parser.add_subparsers(dest="picture", required=True, metavar="PICTURE")
    for name, (module, drawing, inputs) in PICTURES.items():
        function = Function(f"plots.{module}", drawing)
        about = ast.get_docstring(function.source).partition("\n\nArgs:")[0]
        summary = " ".join(about.partition("\n\n")[0].split())
        picture = pictures.add_parser(
            name, help=summary, description=about, formatter_class=parser.formatter_class
        )
        inputs.add(picture)
        add_parameters(picture, function)
        add_option(picture, "output", f"picture to write: {', '.join(ENDINGS)}", required=True)


def run(arguments: argparse.Namespace) -> None:
    output = Path(arguments.output)
    ending = output.suffix.lower()
    if ending not in ENDINGS:
        raise UserError(
            f"--output: found {output.name!r}; expected a name ending in {', '.join(ENDINGS)}"
        )
    module, drawing, inputs = PICTURES[arguments.picture]
    figure = call(Function(f"plots.{module}", drawing), arguments, inputs)
    save = Function("plots.style", "save")
    atomic_write(output, lambda temporary: save(figure, temporary, ending[1:]))
    print(output)
