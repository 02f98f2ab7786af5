"""Compares the similarity of words in the output embeddings of models with human scores.

The table has Spearman's rank correlation × 100 between human scores and the cosine of the two words' vectors, for each
data set; --json has the correlation without the factor. The vector of a word is the mean of the embeddings of its
tokens. A word is looked up as it is written and, if the dictionary lacks one of its tokens, in lower case. Pairs with a
word that is found in neither form, or with a token whose embedding is all zeros, are left out; the last row has the
number of remaining pairs. The correlation is undefined for fewer than two pairs, and if all cosines or all scores are
the same. With --as-published, words are split and looked up as in the released code of Yu et al. (2022). A data set is
a file with a line `word<TAB>word<TAB>score` for each pair. A model of transformers splits words by its own
tokenizer.json.

    agg-fairseq word-similarity runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt \\
        --data data-bin/wikitext-2 --datasets MEN WS353 RG65 RW
    agg-fairseq word-similarity models/gpt2 --datasets MEN WS353 RG65 RW
"""

from __future__ import annotations

import argparse

from ..checkpoints.opening import open_models
from ..data.word_pairs import DATASETS, dataset_files
from ..evaluation import word_similarity
from .options import add_json, add_models, add_tokenizer, check_json, options_of, print_result, tokenizer_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_models(parser)
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="for checkpoints of fairseq-train: folder written by fairseq-preprocess, with the training split",
    )
    parser.add_argument(
        "--datasets",
        required=True,
        nargs="+",
        metavar="SET",
        help=f"data sets: the name of one ({', '.join(DATASETS)}), which is looked for as NAME.txt in "
        "$AGG_DATA/word-similarity; a file; or a folder of such files",
    )
    add_tokenizer(parser)
    parser.add_argument(
        "--as-published",
        action="store_true",
        help="follow the released code of Yu et al. (2022): split words without a space before them (--bpe gpt2), "
        "replace tokens that the dictionary lacks by <unk>, do not look words up in lower case, and keep all pairs",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Measures every model, prints the table and writes the JSON file."""
    datasets, tokenizer = dataset_files(arguments.datasets), tokenizer_of(arguments)
    check_json(arguments.json, [*arguments.inputs, arguments.data, *datasets, *tokenizer.files.values()])
    models = open_models(arguments.inputs, arguments.name, arguments.matrix)
    options = {**options_of(word_similarity, arguments), "datasets": datasets, "tokenizer": tokenizer}
    print_result(word_similarity(models, **options), arguments.json)
