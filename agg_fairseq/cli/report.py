"""Compares runs of fairseq-train on one page: settings, learning curves, all measures, all pictures, samples of text.

RUN is the --save-dir of a training; its checkpoint_best.pt is measured (or checkpoint_last.pt where it has no best) and
its `train.log` read, which `fairseq-train --log-format json --log-file RUN/train.log` writes. Language models get
perplexity, isotropy, neighbours, continuations of the split's prefixes and their measures; translation models BLEU of
logs of fairseq-generate and the similarity of aligned words, where these files are given. What cannot be shown is
listed at the end, with the reason; where that is an error, the page is written all the same, and the exit status is 2.

FILE is one HTML page with all pictures in it: it opens without a network, on a phone, and prints. Measurements and
generated texts are kept in the folder FILE-files, and only made again where a checkpoint, the data or an option has
changed.

    agg-fairseq report runs/mle runs/agg --data data-bin/wikitext-2 --output report.html
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from .. import __version__
from ..errors import UserError
from ..files import check_writable, write_whole
from .embeddings import GROUPINGS
from .reporting import page, sections, texts
from .reporting.context import Context, NotShown
from .reporting.kept import Kept
from .reporting.runs import find_runs
from .tokenisers import add_tokeniser

SECTIONS: dict[str, tuple[str, Callable[[Context], str]]] = {
    "runs": ("Runs and settings", sections.overview),
    "learning-curves": ("Learning curves", sections.learning_curves),
    "language-model": ("Perplexity and predictions", sections.language_model),
    "translations": ("Translations", texts.translations),
    "embeddings": ("Embeddings", sections.embeddings),
    "over-updates": ("Embeddings during training", sections.over_updates),
    "rare-group": ("The rare group", sections.rare_group),
    "neighbors": ("Nearest neighbours", sections.nearest),
    "word-similarity": ("Word similarity", sections.similarity),
    "alignment": ("Similarity of aligned words", texts.alignment),
    "texts": ("Generated texts", texts.generated),
    "frequencies": ("Token frequencies", sections.frequencies),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those that another command has too bear the same names."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs, compared side by side")
    parser.add_argument("--name", nargs="+", metavar="NAME", help="a name per run (default: that of its folder)")
    parser.add_argument("--data", required=True, metavar="DATA", help="folder written by fairseq-preprocess")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="page to write, .html")
    parser.add_argument("--gen-subset", default="test", metavar="SPLIT", help="split to evaluate (default: test)")
    parser.add_argument("--valid-subset", default="valid", metavar="SPLIT", help="of the learning curves")
    parser.add_argument("--groups", choices=tuple(GROUPINGS), help="see isotropy --help (default: of each command)")
    parser.add_argument("--tokens-per-sample", type=int, metavar="T", help="of a block (default: that of the training)")
    parser.add_argument("--words", nargs="+", metavar="WORD", help="whose neighbours (default: three rare words)")
    parser.add_argument("--datasets", nargs="+", metavar="WHAT", help="for word similarity: see word-similarity --help")
    add_tokeniser(parser)
    parser.add_argument("--prefix-length", type=int, default=50, metavar="P", help="tokens given (default: 50)")
    parser.add_argument("--length", type=int, default=100, metavar="L", help="tokens to continue by (default: 100)")
    parser.add_argument("--max-texts", type=int, metavar="N", help="continue only the first N prefixes (default: all)")
    parser.add_argument("--topk", type=int, metavar="K", help="continue by one of the K likeliest (default: likeliest)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the random numbers (default: 1)")
    parser.add_argument("--translations", nargs="+", metavar="LOG", help="output of fairseq-generate, one per run")
    parser.add_argument("--reference", metavar="FILE", help="untokenised references of these, for sacreBLEU")
    parser.add_argument("--moses", metavar="LANG", help="detokenise the translations: see bleu --help")
    parser.add_argument("--alignments", metavar="FILE", help="word alignments of the training split, for AlignSim")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, … (default: a GPU if there is one)")


def run(arguments: argparse.Namespace) -> None:
    """Makes every section and writes the page whole."""
    output = Path(arguments.output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--output: found {output.name!r}; expected a name ending in .html")
    if not Path(arguments.data).is_dir():
        raise UserError(f"{arguments.data}: found no such folder; expected one written by fairseq-preprocess")
    if arguments.translations and len(arguments.translations) != len(arguments.runs):
        found = f"{len(arguments.translations)} logs for {len(arguments.runs)} runs"
        raise UserError(f"--translations: found {found}; give one log each")
    check_writable(output)
    context = Context(find_runs(arguments.runs, arguments.name), arguments, Kept(_files(output)))
    failed: list[UserError] = []
    shown, left_out = _sections(context, failed)
    title = f"Comparison of {', '.join(context.names)}" if len(context.names) > 1 else context.names[0]
    if left_out:
        reasons = page.table(["", "reason"], [[name, reason] for name, reason in left_out.items()])
        shown.append(page.Section("not-shown", "Not in this report", reasons))
    html = page.page(title, shown, _footer(arguments))
    write_whole(output, lambda temporary: temporary.write_text(html, encoding="utf-8"))
    print(f"{output}: {len(shown)} sections, {output.stat().st_size / 2**20:.1f} MiB")
    for name, reason in left_out.items():
        print(f"not shown: {name}: {reason}")
    if failed:
        raise failed[0]


def _files(output: Path) -> Path:
    """Where measurements are kept."""
    return output.with_name(f"{output.name}-files")


def _sections(context: Context, failed: list[UserError]) -> tuple[list[page.Section], dict[str, str]]:
    """The sections that can be shown, and why the others cannot, by their titles; errors are added to `failed`."""
    shown: list[page.Section] = []
    left_out: dict[str, str] = {}
    progress = tqdm(SECTIONS.items(), desc="report", unit="section", disable=None, leave=False)
    for anchor, (title, make) in progress:
        try:
            shown.append(page.Section(anchor, title, make(context)))
        except NotShown as reason:
            left_out[title] = str(reason)
        except UserError as error:  # the others are worth having
            left_out[title] = f"error: {error}"
            failed.append(error)
    return shown, left_out


def _footer(arguments: argparse.Namespace) -> str:
    made = time.strftime("%Y-%m-%d %H:%M")
    return f"agg-fairseq {__version__} report, {made}; data: {arguments.data}; split: {arguments.gen_subset}"
