#!/usr/bin/env bash
# What the optimizer of the output embedding W, and that of the rest, do to rare tokens (docs/why.md).
#
#   data   DATA: a folder of wikitext-2/wiki.{train,valid,test}.tokens; a quarter, in words seen 20 times or more
#   rows   2 layers of 64, one epoch: 1,949 updates of 256 tokens, for each of three or four peak learning rates of W; a minute
#          and a half each on a core of an AMD EPYC. Lion, signSGD and schedule-free need `pip install "agg-fairseq[optimizers]"`
RUNS=${RUNS:-runs/optimizers}
. "$(dirname -- "$0")/../env.sh"
export DATA=${DATA:-data}
text=wt2/4:unk20
if [ "$SIZE" = tiny ]; then text=de/60:unk2; fi
# row W REST RATE,…
row() {
  local name=$1${2:+-rest-$2}
  add_row $name || return 0
  once python -m scripts.ours.optimizers $text $1 "${2:-adamw}" ${SEED:-1} $3 "$RUNS/$name/eval.json"
}
adam=0.003,0.01,0.03
row adamw-0.98 '' $adam,0.1
for beta2 in 0.999 0.95; do row adamw-$beta2 '' $adam; done
row sgd '' 0.3,1,3
row adafactor '' 0.03,0.1,0.3
row lion '' 0.0003,0.001,0.003
row amsgrad '' $adam,0.1
row adamw-no-momentum '' $adam
row signsgd '' 0.0001,0.0003,0.001
row muon '' 0.003,0.01,0.03,0.1
row schedule-free '' $adam
for beta2 in 0.95 0.98 0.999; do row adamw-$beta2 muon $adam; done
table optimizers --changes
print python -m scripts.ours.optimizers "$RUNS" "$RUNS/pushes-and-pulls.png"
