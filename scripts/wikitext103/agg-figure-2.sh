#!/usr/bin/env bash
# AGG, Figure 2 (Yu et al. 2022): isotropy while rare embeddings are frozen, until update 7,000, 18,000 or 29,000, and after.
#
#   rows     until-7000, until-18000, until-29000: 6 layers, 40,000 updates (configs/wikitext103/size/agg-study.yaml)
#   takes    1.8 GPU hours each, by 6 operations per parameter and token at 50 TFLOP/s (half precision); not run yet; 11 GB of checkpoints each
#   differs  at small, of 10,000 updates, and at tiny, of 600, frozen for the same shares of the training
. "$(dirname -- "$0")/../env.sh"
updates=(7000 18000 29000)
case $SIZE in small) updates=(1750 4500 7250) ;; tiny) updates=(105 270 435) ;; esac

corpus data/wikitext103-gpt2 wikitext103/prepare.sh --tokenizer gpt2
for until in "${updates[@]}"; do
  train wikitext103/freeze-until until-$until size=$(size agg-study) criterion.freeze_until=$until
done

once $RUNS/agg-figure-2.png agg-fairseq plot isotropy $(folders) --data $data/data-bin -o $RUNS/agg-figure-2.png
print echo $RUNS/agg-figure-2.png
