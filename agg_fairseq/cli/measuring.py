"""The commands that call a function of the package, whose docstring is their help, and print the Result it returns."""

import argparse
from pathlib import Path

from .. import evaluation
from ..checkpoints.fairseq_checkpoint import Checkpoint, checkpoint_file
from ..checkpoints.opening import open_models
from ..data.alignments import MODELS, align_split
from ..f2.conversion import convert_to_f2
from ..f2.decoupled_decoding import DECODINGS
from ..f2.frequency_classes import ASSIGNMENTS
from ..files import check_distinct
from ..names import unique_names
from .options import add_inputs, add_json, add_models, add_options, check_json, description, options_of, print_result

FUNCTIONS = {
    "groups": evaluation.group_shares,
    "generate-lm": evaluation.generate_texts,
    "text-metrics": evaluation.text_metrics,
    "bleu": evaluation.bleu,
    "isotropy": evaluation.isotropy,
    "align": align_split,
    "align-sim": evaluation.align_sim,
    "word-similarity": evaluation.word_similarity,
    "neighbors": evaluation.neighbors,
    "calibrate": evaluation.calibrate,
    "convert-to-f2": convert_to_f2,
}
FILES = {
    "text-metrics": ("FILE", "generated texts, as agg-fairseq generate-lm writes them"),
    "bleu": ("LOG", "outputs of fairseq-generate"),
}
"""The inputs of the commands that compare no models."""
DATA = {"data": {"flag": "data"}}
CHANGES = {
    "groups": DATA,
    "generate-lm": {**DATA, "f2_decoding": {"choices": DECODINGS}},
    "align": {
        **DATA,
        "source": {"flag": "-s --source-lang"},
        "target": {"flag": "-t --target-lang"},
        "model": {"choices": MODELS},
    },
    "calibrate": {"split": {"flag": "--split"}},
    "convert-to-f2": {
        "assignment": {"flag": "--f2-assignment", "choices": ASSIGNMENTS},
        "classes": {"flag": "--f2-classes"},
    },
}
"""Where an option is not spelled as its parameter, or has choices."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The inputs of a command, the options of its function, and --json."""
    command = parser.prog.split()[-1]
    parser.description = description(FUNCTIONS[command])
    if command in FILES:
        add_inputs(parser, *FILES[command], "its own, without ending")
    elif command in ("generate-lm", "calibrate", "convert-to-f2"):
        is_option = command != "calibrate"
        options = {"required": True} if is_option else {}
        parser.add_argument("--path" if is_option else "path", metavar="CKPT", help="checkpoint of a model", **options)
    elif command not in ("groups", "align"):
        add_models(parser)
    add_options(parser, FUNCTIONS[command], **CHANGES.get(command, {}))
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Calls the function, prints the table and writes the JSON file."""
    function, inputs = FUNCTIONS[arguments.command], []
    path = checkpoint_file(arguments.path) if "path" in arguments else None
    check_distinct(path=path, output=getattr(arguments, "output", None), json=arguments.json)
    check_json(arguments.json)
    if path is not None:
        inputs.append(Checkpoint(path, training_state=False))
    elif arguments.command in FILES:
        names = unique_names(arguments.inputs, arguments.name, "stem")
        inputs.append(dict(zip(names, map(Path, arguments.inputs), strict=True)))
    elif "inputs" in arguments:
        inputs.append(open_models(arguments.inputs, arguments.name, arguments.matrix))
    result = function(*inputs, **options_of(function, arguments))
    print_result(result, arguments.json, transposed=arguments.command == "isotropy")
