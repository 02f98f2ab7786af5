"""Prepares WMT14 English-German for training with fairseq, or any parallel corpus of these two languages.

Without --from, it downloads the archives of the shared task (1.7 GB): Europarl v7, Common Crawl and News Commentary v9
to train on, newstest2012 and newstest2013 for validation, newstest2014 (all 3,003 sentences) to test. It normalises
punctuation and tokenises as Moses does, cuts words into sub-words that it learns on both languages, leaves out pairs to
train on that are longer than 250 sub-words, or one side more than 1.5 times as long as the other, and runs
fairseq-preprocess with one dictionary for both languages: --source-lang de --target-lang en works on it too. In the end
it says how many pairs and entries there are. After an interruption, run it again: it goes on with what is missing.

DIR/manifest.json is written last and says what is in DIR: data-bin for fairseq-train, reference with the plain text for
`agg-fairseq bleu LOG --reference DIR/reference/test.de --moses de`, tokenizer with the codes of the sub-words. The
folders plain, tokenised and text may be removed then.

Papers say 37K shared sub-words, but the dictionary of Yu et al. (2022) has 40,624 entries (Table 12): merges and single
characters, as fairseq counts them. The default is the 40,000 merges of fairseq's own script for WMT14, which come near
to that; --merges 37000 is the other reading.

  bash scripts/wmt14_en_de/prepare.sh
  bash scripts/wmt14_en_de/prepare.sh --from multi30k --merges 6000 --output data/multi30k
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.command import run

from .manifest import is_complete
from .options import add_common, positive
from .parallel_source import WMT14, downloaded, given
from .parallel_text import Preparation, prepare
from .stages import is_made


def main() -> None:
    """The command line."""
    arguments = _parser().parse_args()
    source = downloaded(arguments.downloads) if arguments.source is None else given(arguments.source)
    preparation = Preparation(source, arguments.output, arguments.merges, arguments.workers)
    if arguments.dry_run:
        _say_plan(preparation)
    else:
        prepare(preparation)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bash scripts/wmt14_en_de/prepare.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="download nothing: DIR has {train,valid,test}.{en,de}, a sentence per line, or else WMT's archives; "
        "samples of these are accepted with a warning",
    )
    parser.add_argument(
        "--merges", type=positive, default=40_000, metavar="N", help="of the sub-words (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("data") / WMT14,
        metavar="DIR",
        help="prepared folder (default: %(default)s)",
    )
    add_common(parser)
    return parser


def _say_plan(preparation: Preparation) -> None:
    print(f"{preparation.source.corpus} in {preparation.output}:")
    if is_complete(preparation.output, preparation.settings()):
        print("  is complete")
        return
    for line in preparation.source.plan:
        print(f"  {line}")
    for name, (what, _) in preparation.stages().items():
        print(f"  {name:<10} {'is made' if is_made(preparation.output / name, preparation.settings()) else what}")
    print("  manifest.json, last")


if __name__ == "__main__":
    sys.exit(run("wmt14", main))
