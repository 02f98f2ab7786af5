"""Averages checkpoints of a run into one, as Vaswani et al. (2017) did before they translated.

INPUT is the folder of a run, of which the last checkpoints are averaged, those by epoch or those by
update, which --save-interval-updates writes; or the checkpoints themselves. Parameters are summed in
float64; all else is that of the newest checkpoint, or of the first INPUT, without what is only needed
to resume that run. The result is an ordinary checkpoint of fairseq.

    agg-fairseq average-checkpoints runs/agg --last 20 --by update -o runs/agg/average.pt
    agg-fairseq average-checkpoints a/checkpoint_best.pt b/checkpoint_best.pt -o average.pt
"""

import argparse
from pathlib import Path

from ..checkpoints import Checkpoint
from ..checkpoints.averaging import NAMES, average_checkpoints, last_checkpoints
from ..errors import UserError
from ..result import Result
from .options import COUNT, add_option, add_parameters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs", nargs="+", metavar="INPUT", help="the folder of a run, or checkpoints"
    )
    last = "average the last N checkpoints of the folder"
    parser.add_argument("--last", type=COUNT, default=5, metavar="N", help=last)
    parser.add_argument(
        "--by", choices=NAMES, default="epoch", help="which checkpoints of the folder are used"
    )
    add_parameters(parser, average_checkpoints)
    add_option(parser, "json")


def run(arguments: argparse.Namespace) -> Result:
    paths = list(map(Path, arguments.inputs))
    if paths[0].is_dir() and len(paths) == 1:
        paths = last_checkpoints(paths[0], arguments.last, arguments.by)
    if len(set(paths)) < max(len(paths), 2) or any(path.is_dir() for path in paths):
        raise UserError(
            "INPUT: expected the folder of a run, or two checkpoints or more, each once"
        )
    checkpoints = {str(path): Checkpoint(path) for path in paths}
    return average_checkpoints(checkpoints, arguments.output, force=arguments.force)
