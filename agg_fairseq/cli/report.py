"""Compares runs on one HTML page: settings, curves, all measures and pictures, and texts.

The best checkpoint of each run is measured, or the last one where it has no best; and its `train.log` is read, that
`fairseq-train --log-format json --log-file RUN/train.log` writes. Translation models are compared by BLEU of logs of
fairseq-generate and the similarity of aligned words, if these files are given. Runs that differ by their seed alone are
one model, with mean and standard deviation. What cannot be shown is listed at the end, with the reason. If the reason
is an error, the page is written nevertheless, and the exit status is 2.

The page contains all pictures, needs no network, and can be printed. Results and generated texts are stored in a folder
beside it, and are computed again only if a checkpoint, the data or an option has changed.

    agg-fairseq report runs/mle runs/agg --data data-bin/wikitext-2 -o report.html
"""

import argparse
from dataclasses import fields

from ..errors import UserError
from ..report import ReportOptions, write_report
from .options import TOKENIZER, add_inputs, add_options, files_by_name, select, tokenizer_options
from .outputs import add_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_inputs(parser, "RUN", "folders of runs, compared side by side")
    add_options(parser, "--data", required=True)
    add_options(parser, "--split")
    add_output(parser, "page", "page to write, .html")
    add = parser.add_argument
    add("--baseline", metavar="NAME", help="name of the run that the others are compared with (default: the first)")
    add_options(parser, "--groups", default=None)
    add_options(parser, "--tokens-per-sample", "--words", "--datasets", *TOKENIZER, "--max-texts")
    add("--translations", nargs="+", metavar="LOG", help="outputs of fairseq-generate, one for each RUN")
    add_options(parser, "--reference", "--moses", "--alignments", "--device")


def run(arguments: argparse.Namespace) -> None:
    names = [field.name for field in fields(ReportOptions) if field.name != "tokenizer"]
    options = ReportOptions(tokenizer=tokenizer_options(arguments), **select(arguments, *names))
    left_out = write_report(files_by_name(arguments, "name"), arguments.data, arguments.output, options)
    print(arguments.output)
    for title, reason in left_out.items():
        print(f"not shown: {title}: {reason}")
    for reason in left_out.values():
        if isinstance(reason, UserError):
            raise reason
