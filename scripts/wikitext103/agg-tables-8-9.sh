#!/usr/bin/env bash
# AGG, Tables 8 and 9 (Yu et al. 2022): AGG without one of its gates, and with a rare group that is fixed after an epoch.
#
#   rows     mle, agg (those of Table 3), no-g1, no-g2, static: GPT-2 medium (configs/wikitext103/size/agg.yaml)
#   takes    19 GPU hours each, by 6 operations per parameter and token at 50 TFLOP/s (half precision); not run yet
#   differs  at tiny, rare is the rarest 5% at each update instead of an α
. "$(dirname -- "$0")/../env.sh"
block="--tokens-per-sample 512" context="--context-window 400"
if [ "$SIZE" = tiny ]; then block="--tokens-per-sample 128" context="--context-window 100"; fi

corpus data/wikitext103-gpt2 wikitext103/prepare.sh --tokenizer gpt2
train wikitext103/mle mle size=$(size agg)
train wikitext103/agg agg size=$(size agg) $alpha
train wikitext103/agg no-g1 size=$(size agg) $alpha criterion.agg_gates=g2
train wikitext103/agg no-g2 size=$(size agg) $alpha criterion.agg_gates=g1
train wikitext103/agg static size=$(size agg) $alpha criterion.agg_static_after_epoch=1

for row in $rows; do
  run=$RUNS/$row
  once $run/ppl.json agg-fairseq eval-lm $run --data $data/data-bin $block $context --json $run/ppl.json
  once $run/uniq.json agg-fairseq eval-lm $run --data $data/data-bin $block --json $run/uniq.json
done
table agg-tables-8-9
