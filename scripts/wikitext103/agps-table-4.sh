#!/usr/bin/env bash
# AGPS, Table 4 (Yu et al. 2021): perplexity by relative frequency, plain likelihood, CosReg and AGPS, WikiText-103.
#
#   rows     words-mle, words-cosreg, words-agps: 6 layers, 50,000 updates (configs/wikitext103/size/agps.yaml)
#   takes    8 to 9 hours of an H200, 2.7 to 3.1 each
#   differs  no code is public, and the paper does not say how it measures: perplexity is as by the same authors' later code;
#            that the tokens are words is inferred from "103M words and 260K vocabulary size", which AGG's paper says too, of
#            sub-words. At small, where no word is below 1e-6, groups are of the types, as in AGG. At tiny, rank and counts of
#            AGPS are those of a small corpus in sub-words
. "$(dirname -- "$0")/../env.sh"
corpus data/wikitext103-words wikitext103/prepare.sh --tokenizer words
for config in mle cosreg agps; do
  train wikitext103/$config words-$config size=$(size agps)
done

groups="--groups frequency"
if [ "$SIZE" = small ]; then groups=''; fi
eval_lm $block $context $groups frequency.json
table agps-table-4
