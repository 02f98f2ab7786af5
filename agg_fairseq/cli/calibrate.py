"""Calibrates the groups of tokens of a trained model: each is then expected as often as it appears
in the split.

One offset per group (frequent, medium, rare; or those of --occurrences-in) is fitted on a split and
saved as the bias of the output layer: the result is a checkpoint of a model with a log-unigram
bias, which fairseq-eval-lm and fairseq-generate load with --user-dir. The table shows the split
before and after. Nothing changes within a group. AGG needs this most.

    agg-fairseq calibrate runs/agg/checkpoint_best.pt --data data-bin/wikitext-2 -o runs/agg/calibrated.pt
"""

from .options import MODEL, calling

add_arguments, run = calling("evaluation.perplexity", "calibrate", MODEL)
