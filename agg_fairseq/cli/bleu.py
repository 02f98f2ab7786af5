"""Scores translations printed by fairseq-generate, side by side.

`BLEU` is the tokenized BLEU of Vaswani et al. (2017), as fairseq's compound_split_bleu.sh computes it: compounds in the
hypotheses (H) and the references (T) of the log are split at their hyphens, and the tokens are compared as they are.
This score is comparable only between models whose text was tokenized in the same way. `sacreBLEU`, the score to report,
compares plain text (D) with --reference, the untokenized target side of the split with a sentence per line. For each
score, the table has the brevity penalty (BP) and the ratio of the lengths of hypotheses and references.

fairseq-generate must have joined the sub-words (--remove-bpe, or --remove-bpe sentencepiece). If the text then consists
of Moses tokens, as in the usual WMT data, --moses turns them into plain text: it joins the tokens, and replaces
`&quot;` and similar escapes by their characters. Do not use it for text that was never tokenized, such as that of a
sentencepiece model. Text that appears to need the other setting is refused. If there are several hypotheses for a
sentence (--nbest), the one with the best score is used.

    fairseq-generate data-bin/wmt14 --path checkpoint.pt --remove-bpe --required-batch-size-multiple 1 … > mle.log
    agg-fairseq bleu mle.log agg.log --reference newstest2014.de --moses de
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..evaluation import bleu
from ..names import unique_names
from .options import add_json, add_names, check_json, options_of, print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("inputs", nargs="+", metavar="LOG", help="outputs of fairseq-generate, compared side by side")
    add_names(parser, "log", "its own, without ending")
    parser.add_argument("--reference", metavar="FILE", help="the split's target side, untokenized, for sacreBLEU")
    parser.add_argument(
        "--moses", metavar="LANG", help="detokenize the hypotheses, which are Moses tokens of this language, such as de"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Scores every log, prints the table and writes the JSON file."""
    check_json(arguments.json, [*arguments.inputs, arguments.reference])
    names = unique_names(arguments.inputs, arguments.name, "stem")
    logs = dict(zip(names, map(Path, arguments.inputs), strict=True))
    print_result(bleu(logs, **options_of(bleu, arguments)), arguments.json)
