#!/usr/bin/env bash
# AGG, Figure 5 (Yu et al. 2022): how α changes AGG.
#
#   rows     mle (that of Table 3), alpha-0.01 to alpha-0.05: GPT-2 medium (configs/wikitext103/size/agg.yaml)
#   takes    19 GPU hours each, by 6 operations per parameter and token at 50 TFLOP/s (half precision); not run yet
#   differs  the paper has a picture only. At tiny, the share of rare tokens is 0.02, 0.05, 0.1, 0.2, 0.4 instead of an α
. "$(dirname -- "$0")/../env.sh"
block="--tokens-per-sample 512" context="--context-window 400" key=criterion.agg_alpha values="0.01 0.02 0.03 0.04 0.05"
if [ "$SIZE" = tiny ]; then
  block="--tokens-per-sample 128" context="--context-window 100" key=criterion.agg_rare_fraction values="0.02 0.05 0.1 0.2 0.4"
fi

corpus data/wikitext103-gpt2 wikitext103/prepare.sh --tokenizer gpt2
train wikitext103/mle mle size=$(size agg)
for value in $values; do
  train wikitext103/agg alpha-$value size=$(size agg) $key=$value
done

for row in $rows; do
  run=$RUNS/$row
  once $run/ppl.json agg-fairseq eval-lm $run --data $data/data-bin $block $context --json $run/ppl.json
  once $run/uniq.json agg-fairseq eval-lm $run --data $data/data-bin $block --json $run/uniq.json
done
once $RUNS/agg-figure-5.png agg-fairseq plot alpha-sweep $(in_folders uniq.json) -o $RUNS/agg-figure-5.png
if [ "$SIZE" = tiny ]; then table agg-figure-5-tiny; else table agg-figure-5; fi
