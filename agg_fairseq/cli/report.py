"""Compares runs on one HTML page: settings that differ, learning curves, all measures, pictures,
and texts.

The best checkpoint of each run is measured, or else the last one; and its `train.log` is read, that
`fairseq-train --log-format json --log-file RUN/train.log` writes. What other commands wrote to
--json is compared too, if its rows have the names of runs (--name). Runs that differ by their seed
alone are one model, with mean and standard deviation. A section that fails has the error in its
place; the exit status is then 2. The page contains all pictures and needs no network.

    agg-fairseq report runs/mle runs/agg --data data-bin/wikitext-2 -o report.html
    agg-fairseq report runs/mle runs/agg --data data-bin/wmt14.en-de --results bleu.json align-sim.json -o report.html
"""

import argparse

from ..report import write_report
from ..result import Result
from .options import add_inputs, add_parameters, call


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_inputs(parser, "RUN", "folders of runs, compared side by side", "name")
    add_parameters(parser, write_report)


def run(arguments: argparse.Namespace) -> None:
    arguments.results = list(map(Result.read, arguments.results))
    errors = call(write_report, arguments)
    print(arguments.output)
    for error in errors:
        raise error
