#!/usr/bin/env bash
# AGPS, Figures 1 and 2 (Yu et al. 2021): the first updates of the baseline; inner products, rare words frozen until update 8,000.
#
#   rows     agps-early, agps-until: base (configs/wmt14_en_de/size/agps-base.yaml)
#   takes    0.6 and 3.4 GPU hours, by 6 operations per parameter and token at 50 TFLOP/s (half precision); not run yet; 5 and 20 GB of checkpoints
#   differs  the paper does not say which updates Figure 1 shows: 1,000 to 4,000 here; nor how long Figure 2 goes on after
#            the 8,000: 24,000 here. Frozen until 4,000 of 12,000 at small, 100 of 200 at tiny
. "$(dirname -- "$0")/../env.sh"
early=(1000 2000 3000 4000) until="criterion.freeze_until=8000 optimization.max_update=24000 checkpoint.save_interval_updates=1000"
case $SIZE in
  small) until="criterion.freeze_until=4000 optimization.max_update=12000 checkpoint.save_interval_updates=500" ;;
  tiny) early=(50 100 150 200) until=criterion.freeze_until=100 ;;
esac

corpus data/wmt14_en_de wmt14_en_de/prepare.sh
train wmt14_en_de/mle agps-early size=$(size agps-base) checkpoint.save_interval_updates=${early[0]} \
  checkpoint.keep_interval_updates=-1 optimization.max_update=${early[3]}
train wmt14_en_de/freeze-until agps-until size=$(size agps-base) checkpoint.keep_interval_updates=-1 $until

once $RUNS/agps-figure-1.png agg-fairseq plot projection $(after agps-early "${early[@]}") --name "${early[@]}" \
  --groups frequency --data $data/data-bin -o $RUNS/agps-figure-1.png
once $RUNS/agps-figure-2.png agg-fairseq plot inner-products $RUNS/agps-until --groups frequency --data $data/data-bin \
  -o $RUNS/agps-figure-2.png
print echo $RUNS/agps-figure-1.png $RUNS/agps-figure-2.png
