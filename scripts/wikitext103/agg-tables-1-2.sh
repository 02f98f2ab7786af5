#!/usr/bin/env bash
# AGG, Tables 1 and 2 (Yu et al. 2022): the embeddings of rare tokens frozen, whole or in parts of their gradient.
#
#   rows     study-mle, study-freeze, study-freeze-bc, -b, -c: 6 layers, 40,000 updates (configs/wikitext103/size/agg-study.yaml)
#   takes    1.8 GPU hours each, by 6 operations per parameter and token at 50 TFLOP/s (half precision); not run yet
#   differs  the paper does not give all settings of this model; those that are ours are in the configuration
. "$(dirname -- "$0")/../env.sh"
block="--tokens-per-sample 512" context="--context-window 400"
if [ "$SIZE" = tiny ]; then block="--tokens-per-sample 128" context="--context-window 100"; fi

corpus data/wikitext103-gpt2 wikitext103/prepare.sh --tokenizer gpt2
train wikitext103/mle study-mle size=$(size agg-study)
train wikitext103/freeze study-freeze size=$(size agg-study)
for parts in bc b c; do
  train wikitext103/freeze study-freeze-$parts size=$(size agg-study) criterion.freeze_parts=$parts
done

# As in the authors' commands: perplexity of the last 112 of each 512 tokens, at tiny of the last 28 of each 128.
for row in $rows; do
  run=$RUNS/$row
  once $run/ppl.json agg-fairseq eval-lm $run --data $data/data-bin $block $context --json $run/ppl.json
done
table agg-tables-1-2
