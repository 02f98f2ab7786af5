"""Compares runs of fairseq-train on one page: settings, learning curves, all measures, all pictures, samples of text.

RUN is the --save-dir of a training. Its checkpoint_best.pt is measured (checkpoint_last.pt, if there is no best one),
and its `train.log` is read, which `fairseq-train --log-format json --log-file RUN/train.log` writes. For language
models, the page has perplexity, isotropy, neighbors, continuations of the split's prefixes and their measures. For
translation models, it has BLEU of logs of fairseq-generate and the similarity of aligned words, if these files are
given. At the top, the page says what is better and what is worse in each model than in the baseline. Runs that differ
by their seed alone are one model, with mean and standard deviation. What cannot be shown is listed at the end, with the
reason. If the reason is an error, the page is written nevertheless, and the exit status is 2.

FILE is one HTML page that contains all pictures. It needs no network, can be read on a phone, and can be printed.
Results and generated texts are stored in the folder FILE-files, and are computed again only if a checkpoint, the data
or an option has changed.

    agg-fairseq report runs/mle runs/agg --data data-bin/wikitext-2 --output report.html
"""

from __future__ import annotations

import argparse

from ..names import unique_names
from ..report import ReportOptions, write_report
from .options import (
    add_data,
    add_device,
    add_generation,
    add_grouping,
    add_names,
    add_split,
    add_tokenizer,
    options_of,
    tokenizer_of,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those that another command has too have the same names."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs, compared side by side")
    add_names(parser, "run", "that of its folder")
    parser.add_argument(
        "--baseline", metavar="NAME", help="name of the run that the others are compared with (default: the first)"
    )
    add_data(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="page to write, .html")
    add_split(parser, "evaluate")
    parser.add_argument(
        "--valid-subset",
        dest="valid_split",
        default="valid",
        metavar="SPLIT",
        help="split whose loss the learning curves show (default: valid)",
    )
    add_grouping(parser, default=None)
    parser.add_argument(
        "--tokens-per-sample", type=int, metavar="T", help="tokens per block (default: as in the training)"
    )
    parser.add_argument(
        "--words", nargs="+", metavar="WORD", help="words whose nearest neighbors are shown (default: three rare words)"
    )
    parser.add_argument(
        "--datasets", nargs="+", metavar="WHAT", help="data sets of word similarity: see word-similarity --help"
    )
    add_tokenizer(parser)
    add_generation(parser)
    parser.add_argument("--translations", nargs="+", metavar="LOG", help="outputs of fairseq-generate, one per run")
    parser.add_argument("--reference", metavar="FILE", help="untokenized references of the translations, for sacreBLEU")
    parser.add_argument("--moses", metavar="LANG", help="detokenize the translations: see bleu --help")
    parser.add_argument("--alignments", metavar="FILE", help="word alignments of the training split, for AlignSim")
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Writes the report, and prints what is on it and what is not."""
    names = unique_names(arguments.runs, arguments.name, "name")
    options = ReportOptions(tokenizer=tokenizer_of(arguments), **options_of(ReportOptions, arguments))
    runs = dict(zip(names, arguments.runs, strict=True))
    report = write_report(runs, arguments.data, arguments.output, options)
    print(f"{report.path}: {report.sections} sections, {report.path.stat().st_size / 2**20:.1f} MiB")
    for title, reason in report.left_out.items():
        print(f"not shown: {title}: {reason}")
    if report.errors:
        raise report.errors[0]
