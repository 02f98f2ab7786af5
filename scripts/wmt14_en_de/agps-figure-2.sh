#!/usr/bin/env bash
# AGPS, Figure 2 (Yu et al. 2021): mean inner products within the groups, rare words frozen until update 8,000.
#
#   rows     agps-until: base (configs/wmt14_en_de/size/agps-base.yaml), 24,000 updates, with all its checkpoints
#   takes    3.4 GPU hours, by 6 operations per parameter and token at 50 TFLOP/s (half precision); not run yet; 20 GB
#   differs  the paper does not say for how long it goes on. Frozen until 4,000 of 12,000 at small, 100 of 200 at tiny
. "$(dirname -- "$0")/../env.sh"
until="criterion.freeze_until=8000 optimization.max_update=24000 checkpoint.save_interval_updates=1000"
case $SIZE in
  small) until="criterion.freeze_until=4000 optimization.max_update=12000 checkpoint.save_interval_updates=500" ;;
  tiny) until=criterion.freeze_until=100 ;;
esac

corpus data/wmt14_en_de wmt14_en_de/prepare.sh
train wmt14_en_de/freeze-until agps-until size=$(size agps-base) checkpoint.keep_interval_updates=-1 $until

once $RUNS/agps-figure-2.png agg-fairseq plot inner-products $(folders) --groups frequency --data $data/data-bin \
  -o $RUNS/agps-figure-2.png
print echo $RUNS/agps-figure-2.png
