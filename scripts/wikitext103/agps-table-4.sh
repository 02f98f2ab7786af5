#!/usr/bin/env bash
# AGPS, Table 4 (Yu et al. 2021): perplexity by relative frequency, plain likelihood, CosReg and AGPS, WikiText-103.
#
#   rows     words-mle, words-cosreg, words-agps: 6 layers, 50,000 updates (configs/wikitext103/size/agps.yaml)
#   takes    3 hours each on one NVIDIA H200, in proportion to what was measured of GPT-2 medium (docs/reproduction.md); not run yet
#   differs  no code is public, and the paper does not say how it measures: perplexity is that of the last 112 of each 512
#            tokens, as by the same authors' later code; that the tokens are words is inferred from "103M words and 260K
#            vocabulary size", which AGG's paper says too, of sub-words. At tiny, rank and counts of AGPS are those of a small corpus in sub-words
. "$(dirname -- "$0")/../env.sh"
block="--tokens-per-sample 512 --as-published" context="--context-window 400"
if [ "$SIZE" = tiny ]; then block="--tokens-per-sample 128 --as-published" context="--context-window 100"; fi

corpus data/wikitext103-words wikitext103/prepare.sh --tokenizer words
train wikitext103/mle words-mle size=$(size agps)
train wikitext103/cosreg words-cosreg size=$(size agps)
train wikitext103/agps words-agps size=$(size agps)

eval_lm $block $context --groups frequency frequency.json
table agps-table-4
