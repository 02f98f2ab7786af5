"""Compares the similarity of words in the output embeddings of models with human scores.

The table has Spearman's rank correlation × 100 between human scores and the cosine of the two
words' vectors, and the number of pairs whose words were found. The vector of a word is the mean of
the embeddings of its tokens. If the dictionary lacks one of these, the word is looked up in lower
case. Other pairs, and those with a token whose embedding is all zeros, are left out. A model of
transformers splits words by its own tokenizer.json.

    agg-fairseq word-similarity runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt \\
        --data data-bin/wikitext-2 --datasets MEN WS353 RG65 RW
    agg-fairseq word-similarity models/gpt2 --datasets MEN WS353 RG65 RW

Reference: Yu et al. (2022), Table 6.
"""

from .options import MODELS, calling

add_arguments, run = calling("evaluation.words", "word_similarity", MODELS)
