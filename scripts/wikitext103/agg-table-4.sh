#!/usr/bin/env bash
# AGG, Tables 4 and 11 (Yu et al. 2022): unlikelihood training, alone and with AGG.
#
#   rows     ul, ul-agg: GPT-2 medium (configs/wikitext103/size/agg.yaml)
#   takes    19 GPU hours each, by 6 operations per parameter and token at 50 TFLOP/s (half precision); not run yet
#   differs  candidates come from the same sequence alone. At tiny, rare is the rarest 5% at each update instead of an α
. "$(dirname -- "$0")/../env.sh"
block="--tokens-per-sample 512" context="--context-window 400"
if [ "$SIZE" = tiny ]; then block="--tokens-per-sample 128" context="--context-window 100"; fi

corpus data/wikitext103-gpt2 wikitext103/prepare.sh --tokenizer gpt2
train wikitext103/ul ul size=$(size agg)
train wikitext103/agg ul-agg size=$(size agg) criterion.ul_alpha=1 $alpha

for row in $rows; do
  run=$RUNS/$row
  once $run/ppl.json agg-fairseq eval-lm $run --data $data/data-bin $block $context --json $run/ppl.json
  once $run/uniq.json agg-fairseq eval-lm $run --data $data/data-bin $block --json $run/uniq.json
done
table agg-table-4
table agg-table-11
