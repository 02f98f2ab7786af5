"""Finds the tokens whose output embeddings are nearest to that of a word, by cosine, in float64.

The vector of a word of several tokens is the mean of their embeddings; they, special tokens and
fillers of the dictionary are no neighbors. † marks tokens that are rare in the training text,
‡ those that it never has. A model of transformers splits words by its own tokenizer.json.

    agg-fairseq neighbors runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2 \\
        --words homepage Werewolf policymakers
    agg-fairseq neighbors models/gpt2 --words homepage Werewolf policymakers

Reference: Yu et al. (2022), Tables 13 and 14; Yu et al. (2021), Tables 10 to 12.
"""

from .options import MODELS, calling

add_arguments, run = calling("evaluation.words", "neighbors", MODELS)
