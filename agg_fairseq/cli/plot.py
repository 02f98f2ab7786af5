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
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import plots
from ..checkpoints.fairseq_checkpoint import checkpoints_of_run
from ..checkpoints.opening import open_models
from ..errors import UserError
from ..files import check_writable, read_json_object, write_whole
from ..names import unique_names
from .options import add_data, add_frequencies, add_grouping, add_models, add_names, add_unused

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


class Picture(NamedTuple):
    """A picture: the function that draws it, what it is drawn from, a line of help, and its options."""

    draw: Callable[..., Figure]
    input: str
    summary: str
    options: tuple[str, ...] = ()


PICTURES = {
    "projection": Picture(
        plots.projection,
        "MODEL",
        "SVD projection of the output embeddings, colored by frequency group",
        ("data", "text", "groups"),
    ),
    "singular-values": Picture(plots.singular_values, "MODEL", "singular values of the output embeddings, largest = 1"),
    "isotropy": Picture(
        plots.isotropy_over_updates,
        "RUN",
        "isotropy of frequent and rare embeddings, and the cosine between them, over the updates",
        ("data", "groups"),
    ),
    "inner-products": Picture(
        plots.inner_products_over_updates,
        "RUN",
        "mean inner product between embeddings of the same frequency group, over the updates",
        ("data", "groups"),
    ),
    "rare-tokens": Picture(plots.rare_tokens, "LOG", "size of the rare group over the updates"),
    "learning-curves": Picture(
        plots.learning_curves, "LOG", "perplexity over the updates, training and validation", ("valid_split",)
    ),
    "alpha-sweep": Picture(
        plots.alpha_sweep,
        "EVAL.json",
        "perplexity, Uniq and isotropy of models trained with different α, or with different rare fractions",
    ),
    "similarity": Picture(
        plots.similarity,
        "MODEL",
        "cosine of a word with every token, by frequency rank",
        ("data", "text", "groups", "words"),
    ),
    "under-trained": Picture(
        plots.under_trained,
        "MODEL",
        "how near the tokens of each frequency group are to tokens that no training text had",
        ("data", "text", "groups", "unused"),
    ),
    "frequencies": Picture(plots.frequencies, "DATA", "occurrences of each token in the training split, by rank"),
    "token-shares": Picture(
        plots.token_shares, "METRICS.json", "share of frequent, medium, rare and very rare tokens in generated texts"
    ),
    "class-sweep": Picture(
        plots.class_sweep,
        "METRICS.json",
        "similarity of generated texts to human texts and to each other, by number of frequency classes",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds a sub-command for each picture, described by the docstring of the function that draws it."""
    pictures = parser.add_subparsers(dest="picture", required=True, metavar="PICTURE")
    for name, picture in PICTURES.items():
        about, _, sections = inspect.cleandoc(picture.draw.__doc__ or "").partition("\n\nArgs:")
        reference = sections.partition("\n\nReference: ")[2]
        description = f"{about} {f'Reference: {reference}' if reference else ''}"
        one = pictures.add_parser(name, help=picture.summary, description=description)
        if picture.input == "MODEL":
            add_models(one)
        else:
            one.add_argument("inputs", nargs="+", metavar=picture.input, help=INPUTS[picture.input])
        if picture.input in NAMES:
            add_names(one, "input", NAMES[picture.input])
        if "text" in picture.options:
            add_frequencies(one)
        elif "data" in picture.options:
            add_data(one)
        if "groups" in picture.options:
            add_grouping(one)
        if "words" in picture.options:
            help_text = "tokens of the dictionary, a block of panels for each"
            one.add_argument("--words", nargs="+", required=True, metavar="WORD", help=help_text)
        if "unused" in picture.options:
            add_unused(one)
        if "valid_split" in picture.options:
            help_text = "as in the training (default: valid)"
            one.add_argument("--valid-subset", dest="valid_split", default="valid", metavar="SPLIT", help=help_text)
        one.add_argument("-o", "--output", required=True, metavar="FILE", help=f"picture: {', '.join(ENDINGS)}")


def run(arguments: argparse.Namespace) -> None:
    """Draws the picture and writes it whole."""
    output = Path(arguments.output)
    if output.suffix.lower() not in ENDINGS:
        raise UserError(f"--output: found {output.name!r}; expected a name ending in {', '.join(ENDINGS)}")
    check_writable(output)
    figure = draw(arguments)
    write_whole(output, lambda temporary: plots.save(figure, temporary, output.suffix[1:].lower()))
    print(output)


def draw(arguments: argparse.Namespace) -> Figure:
    """Draws the picture that the options ask for."""
    picture, paths, names = PICTURES[arguments.picture], arguments.inputs, getattr(arguments, "name", None)
    inputs: dict[str, Any]
    if picture.input == "MODEL":
        inputs = open_models(paths, names, arguments.matrix)
    elif picture.input == "RUN":
        inputs = dict(zip(unique_names(paths, names, "name"), map(checkpoints_of_run, paths), strict=True))
    elif picture.input == "LOG":
        inputs = dict(zip(unique_names(paths, names, "folder"), map(Path, paths), strict=True))
    elif picture.input == "DATA":
        inputs = dict(zip(unique_names(paths, names, "name"), map(Path, paths), strict=True))
    else:
        command = "eval-lm" if picture.input == "EVAL.json" else "text-metrics"
        inputs = {path: read_json_object(path, f"a file of agg-fairseq {command} --json") for path in paths}
    return picture.draw(inputs, **{option: getattr(arguments, option) for option in picture.options})
