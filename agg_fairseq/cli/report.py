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

from ..result import Result
from .options import Files, Function, add_parameters, call

RUNS = Files("RUN", "folders of runs, compared side by side", "name")
WRITE_REPORT = Function("report", "write_report")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    RUNS.add(parser)
    add_parameters(parser, WRITE_REPORT)


def run(arguments: argparse.Namespace) -> None:
    arguments.results = list(map(Result.read, arguments.results))
    errors = call(WRITE_REPORT, arguments, RUNS)
    print(arguments.output)
    for error in errors:
        raise error
