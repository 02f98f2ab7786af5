"""Measures whether embeddings of translation models are similar for words of the two languages that were aligned.

AlignSim (0 to 1) of a token is the cosine of two vectors over the joined vocabulary: how often it was aligned with each
other token, and the softmax of 10 × the cosines of its embedding with all embeddings. The table has the
mean over the tokens that were aligned at least once ("labeled tokens"), for each frequency group and for all. The row
`orthogonal` has the values of embeddings that are all orthogonal to each other and contain no information. It is far
from 0 if many words are the same in both languages, and are therefore aligned with themselves: only the difference from
this row is due to what a model has learned. Frequencies are those of the target side.

    agg-fairseq align-sim runs/mle/checkpoint_best.pt runs/agps/checkpoint_best.pt --data data-bin/wmt14.en-de \\
        --alignments wmt14.en-de.align

Reference: Yu et al. (2021), Eqs. 16 and 17, Table 3.
"""

import argparse

from ..evaluation import Result, align_sim
from .options import add_models, add_options, call, models_by_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    add_options(parser, "--data", "--alignments", required=True)
    add_options(parser, "--groups", default="frequency")
    add_options(parser, "--json")


def run(arguments: argparse.Namespace) -> Result:
    return call(align_sim, arguments, models_by_name(arguments))
