#!/usr/bin/env bash
# AGPS, Tables 10 to 12 and Figures 5 to 7 (Yu et al. 2021): the nearest neighbors of three words, and cosines with all tokens.
#
#   rows     agps-base-mle, -cosreg, -agps: those of Table 2, which agps-tables-1-2.sh trains
#   takes    no training
#   differs  † marks rare tokens, which the paper does not mark. WORDS="one two" are other words, which have to be tokens
. "$(dirname -- "$0")/../env.sh"
rows=${MODELS:-agps-base-mle agps-base-cosreg agps-base-agps} words=${WORDS:-optimum criminal happiness}

corpus data/wmt14_en_de wmt14_en_de/prepare.sh
once $RUNS/agps-words.md agg-fairseq neighbors $(in_folders averaged.pt) --name $rows --data $data/data-bin --words $words \
  --groups frequency $bpe
print cat $RUNS/agps-words.md
table agps-words
for word in $words; do
  once $RUNS/agps-figure-$word.png agg-fairseq plot similarity $(in_folders averaged.pt) --name $rows --words $word \
    --groups frequency --data $data/data-bin -o $RUNS/agps-figure-$word.png
done
