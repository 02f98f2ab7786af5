"""Continues prefixes of a split, or the lines of a text, with a language model, and writes a JSON
object per line.

The split is one stream of tokens, cut into blocks of a prefix and its reference. `prefix`,
`continuation` and `reference` contain tokens of the dictionary, separated by spaces. The defaults
are the paper's, with greedy decoding.

    agg-fairseq generate-lm runs/mle/checkpoint_best.pt --data data-bin/wikitext-103 -o mle.jsonl
    agg-fairseq generate-lm runs/mle/checkpoint_best.pt --data data-bin/wikitext-103 -o top10.jsonl --topk 10 \\
        --prefixes prefixes.txt --bpe sentencepiece --sentencepiece-model sentencepiece.model

Reference: Choi et al. (2020), Sec. 4.1.5; Fan et al. (2018) for top-k sampling.
"""

from .options import MODEL, calling

add_arguments, run = calling("evaluation.texts", "generate_texts", MODEL)
