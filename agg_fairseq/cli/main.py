"""Entry point of `agg-fairseq`: one sub-command per module of this folder."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Sequence

from .. import __version__
from ..errors import UserError

COMMANDS = {
    "eval-lm": ("eval_lm", "perplexity, distinct predictions and isotropy of language models, by frequency group"),
    "generate-lm": ("generate_lm", "continuations of a split's prefixes by a language model, greedy or sampled"),
    "text-metrics": ("text_metrics", "how close generated texts are to the references, how similar and how varied"),
    "bleu": ("bleu", "tokenized BLEU and sacreBLEU of what fairseq-generate printed"),
    "isotropy": ("isotropy", "isotropy, mean cosines and singular values of output embeddings, by frequency group"),
    "align": ("align", "word alignments of a parallel training split, by eflomal"),
    "align-sim": ("align_sim", "similarity of the embeddings of aligned words in translation models, by group"),
    "word-similarity": ("word_similarity", "agreement of output embeddings with human scores of pairs of words"),
    "neighbors": ("neighbors", "the tokens whose output embeddings are nearest to those of given words"),
    "convert-to-f2": (
        "convert_to_f2",
        "conversion of a model with the ordinary softmax to the factorized output layer",
    ),
    "average-checkpoints": ("average_checkpoints", "the mean of the last checkpoints of a run, as a checkpoint"),
    "report": ("report", "one HTML page that compares runs: settings, curves, all measures and pictures, texts"),
    "plot": ("plot", "the papers' pictures: embeddings, singular values, isotropy and rare group over the updates, …"),
    "doctor": ("doctor", "versions found and known incompatibilities, each with its remedy"),
    "user-dir": ("user_dir", "print the folder to pass to fairseq's --user-dir"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a sub-command.

    Returns:
        Exit status: 0, or 1 where `doctor` finds that training could not start, or 2 for an error to be mended.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # tokens are of any script, terminals are not
    chosen = _parser(arguments).parse_args(arguments)
    logging.disable(logging.INFO)  # importing fairseq turns on the debug messages of every library
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fairseq's use of torch: nothing a user here could mend
            return chosen.run(chosen) or 0
    except UserError as error:
        print(f"agg-fairseq {chosen.command}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("agg-fairseq: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head`: whoever read has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        logging.disable(logging.NOTSET)


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Only the sub-command that is asked for is imported: `doctor` must run where the others' needs are missing."""
    parser = argparse.ArgumentParser(
        prog="agg-fairseq",
        description="Measures and plots token embeddings. The training objectives are fairseq criterions, "
        'used as: fairseq-train --user-dir "$(agg-fairseq user-dir)" --criterion agg …',
    )
    parser.add_argument("--version", action="version", version=f"agg-fairseq {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module_name, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name not in arguments:
            continue
        module = importlib.import_module(f".{module_name}", __package__)
        command.description = module.__doc__
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
