#!/usr/bin/env bash
# AGPS, Table 3 (Yu et al. 2021): AlignSim, the similarity of the embeddings of aligned words. Needs eflomal: '.[align]'.
#
#   rows     agps-base-mle, -cosreg, -agps: those of Table 2, which agps-tables-1-2.sh trains
#   takes    no training
#   differs  words are aligned by eflomal; by fast_align in the paper
. "$(dirname -- "$0")/../env.sh"
rows=${MODELS:-agps-base-mle agps-base-cosreg agps-base-agps}

corpus data/wmt14_en_de wmt14_en_de/prepare.sh
once $RUNS/agps.align agg-fairseq align $data/data-bin -o $RUNS/agps.align
for row in $rows; do
  run=$RUNS/$row
  once $run/align.json agg-fairseq align-sim $run/averaged.pt --data $data/data-bin --alignments $RUNS/agps.align \
    --json $run/align.json
done
table agps-table-3
