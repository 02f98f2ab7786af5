#!/usr/bin/env bash
# AGPS, Figure 1 (Yu et al. 2021): the embeddings of the baseline in the first updates, WMT14 English to German.
#
#   rows     agps-early: the beginning of agps-base-mle (configs/wmt14_en_de/size/agps-base.yaml), with all its checkpoints
#   takes    0.6 GPU hours, by 6 operations per parameter and token at 50 TFLOP/s (half precision); not run yet; 5 GB
#   differs  the paper does not say which updates it shows: here 1,000 to 4,000; at tiny 50 to 200
. "$(dirname -- "$0")/../env.sh"
updates=(1000 2000 3000 4000)
if [ "$SIZE" = tiny ]; then updates=(50 100 150 200); fi

corpus data/wmt14_en_de wmt14_en_de/prepare.sh
train wmt14_en_de/mle agps-early size=$(size agps-base) checkpoint.save_interval_updates=${updates[0]} \
  checkpoint.keep_interval_updates=-1 optimization.max_update=${updates[3]}

once $RUNS/agps-figure-1.png agg-fairseq plot projection $(after agps-early "${updates[@]}") --name "${updates[@]}" \
  --groups frequency --data $data/data-bin -o $RUNS/agps-figure-1.png
print echo $RUNS/agps-figure-1.png
