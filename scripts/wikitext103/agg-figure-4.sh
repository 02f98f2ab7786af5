#!/usr/bin/env bash
# AGG, Figure 4 (Yu et al. 2022): the size of the rare group in the first 1,000 updates.
#
#   rows     agg-early: GPT-2 medium (configs/wikitext103/size/agg.yaml), 1,000 updates
#   takes    0.4 GPU hours, by 6 operations per parameter and token at 50 TFLOP/s (half precision); not run yet
#   differs  at tiny, rare is the rarest 5% at each update instead of an α, and there are 300 updates
. "$(dirname -- "$0")/../env.sh"
updates=1000
if [ "$SIZE" = tiny ]; then updates=300; fi

corpus data/wikitext103-gpt2 wikitext103/prepare.sh --tokenizer gpt2
train wikitext103/agg agg-early size=$(size agg) $alpha common.log_interval=1 \
  optimization.max_update=$updates

once $RUNS/agg-figure-4.png agg-fairseq plot rare-tokens $RUNS/agg-early/train.log -o $RUNS/agg-figure-4.png
print echo $RUNS/agg-figure-4.png
