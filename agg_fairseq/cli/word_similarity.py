"""Compares the similarity of words in the output embeddings of models with human scores.

The table has Spearman's rank correlation × 100 between human scores and the cosine of the two words' vectors, for each
data set. The vector of a word is the mean of the embeddings of its tokens. A word is looked up as it is written and, if
the dictionary lacks one of its tokens, in lower case. Pairs with a word that is found in neither form, or with a token
whose embedding is all zeros, are left out; the last row has the number of remaining pairs. A model of transformers
splits words by its own tokenizer.json.

    agg-fairseq word-similarity runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt \\
        --data data-bin/wikitext-2 --datasets MEN WS353 RG65 RW
    agg-fairseq word-similarity models/gpt2 --datasets MEN WS353 RG65 RW

Reference: Yu et al. (2022), Table 6.
"""

import argparse

from ..evaluation import Result, word_similarity
from .options import TOKENIZER, add_models, add_options, call, models_by_name, tokenizer_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    add_options(parser, "--data")
    add_options(parser, "--datasets", required=True)
    add_options(parser, *TOKENIZER)
    as_published = (
        "follow the released code of Yu et al. (2022): split words without the space before them (--bpe gpt2), replace "
        "tokens that the dictionary lacks by <unk>, and keep all pairs whose cosine is defined"
    )
    parser.add_argument("--as-published", action="store_true", help=as_published)
    add_options(parser, "--json")


def run(arguments: argparse.Namespace) -> Result:
    return call(word_similarity, arguments, models_by_name(arguments), tokenizer=tokenizer_options(arguments))
