"""Prepares WikiText-103 or WikiText-2 for fairseq-train.

python -m scripts.data.wikitext wikitext103 --help
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agg_fairseq.errors import UserError
from scripts.command import run

from .options import add_common, positive
from .wikitext_corpora import CORPORA, Corpus
from .wikitext_plan import MEGABYTE, plan
from .wikitext_preparation import BPE, Preparation, prepare

VOCABULARY = 30_000
"""Choi et al. (2020), Table 6."""
DESCRIPTION = """\
Prepares {name} for fairseq-train: downloads it ({megabytes:.0f} MB), cuts it into tokens and binarises it. Stages that
are done are skipped, so a run that was interrupted goes on when it is started again. The folder is complete once it
has a manifest.json; its folders text and encoded may be removed then.
{measured}"""
TOKENIZERS = """\
tokenizers:
  gpt2           GPT-2's 50,257 byte-level sub-words, as ids; the dictionary has those that occur. Each line is encoded
                 on its own, without the spaces around it, and empty lines stay, as Yu et al. (2022) did it
  sentencepiece  BPE learnt on the training part, as many sub-words as --vocabulary says
  words          the words as they are

what --from takes:
  the corpus's zip; or a folder of wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens; or a folder of the
  parquet files of Salesforce/wikitext on the Hugging Face hub. A text that is not the published one, a sample of it
  say, is accepted with a warning; the raw version, or one without ` @-@ `, is not. What is downloaded has to be the
  published text.
"""


def main() -> None:
    """The command line."""
    arguments = _parser().parse_args()
    preparation = _preparation(arguments)
    if arguments.dry_run:
        print(*plan(preparation), sep="\n")
    else:
        prepare(preparation)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Prepares a WikiText corpus for fairseq-train.")
    corpora = parser.add_subparsers(dest="corpus", required=True)
    for key, corpus in CORPORA.items():
        _add_options(
            corpora.add_parser(
                key,
                prog=f"bash scripts/{key}/prepare.sh",
                description=_description(corpus),
                epilog=TOKENIZERS,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            ),
            key,
            corpus,
        )
    return parser


def _description(corpus: Corpus) -> str:
    return DESCRIPTION.format(name=corpus.name, megabytes=corpus.zip_bytes / MEGABYTE, measured=corpus.measured).strip()


def _add_options(parser: argparse.ArgumentParser, key: str, corpus: Corpus) -> None:
    parser.add_argument(
        "--tokenizer", choices=tuple(BPE), default=corpus.tokenizer, help="see below (default: %(default)s)"
    )
    parser.add_argument(
        "--vocabulary",
        type=positive,
        metavar="N",
        help=f"sub-words of --tokenizer sentencepiece (default: {VOCABULARY:,}, as Choi et al. 2020)",
    )
    parser.add_argument(
        "--bpe-dir",
        type=Path,
        metavar="DIR",
        help="folder of encoder.json and vocab.bpe, for --tokenizer gpt2 (default: they are downloaded)",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="WHAT",
        help="what you have of the corpus; nothing is downloaded of it",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help=f"the prepared folder (default: data/{key}-TOKENIZER)"
    )
    add_common(parser)


def _preparation(arguments: argparse.Namespace) -> Preparation:
    for option, tokenizer in {"vocabulary": "sentencepiece", "bpe_dir": "gpt2"}.items():
        if getattr(arguments, option) is not None and arguments.tokenizer != tokenizer:
            raise UserError(
                f"--{option.replace('_', '-')}: found it with --tokenizer {arguments.tokenizer}; expected --tokenizer "
                f"{tokenizer}"
            )
    return Preparation(
        key=arguments.corpus,
        source=arguments.source,
        tokenizer=arguments.tokenizer,
        vocabulary=arguments.vocabulary or VOCABULARY,
        bpe_dir=arguments.bpe_dir,
        output=arguments.output or Path("data") / f"{arguments.corpus}-{arguments.tokenizer}",
        downloads=arguments.downloads,
        workers=arguments.workers,
    )


if __name__ == "__main__":
    sys.exit(run("wikitext", main))
