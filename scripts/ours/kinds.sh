#!/usr/bin/env bash
# Which kinds of parameters gain from a long second moment of Adam, and from which size of the model on (docs/why.md).
#
#   data   DATA: a folder of wikitext-2/wiki.{train,valid,test}.tokens; a quarter, in words seen 20 times or more
#   rows   2 layers of 64, 128 or 256 units, one epoch: 1,949 updates of 256 tokens; a name says which parameters have β₂ = 0.999
#          instead of 0.98. One, 1.6 and 3.7 minutes each on a core of an AMD EPYC
RUNS=${RUNS:-runs/kinds}
. "$(dirname -- "$0")/../env.sh"
export DATA=${DATA:-data}
text=wt2/4:unk20
if [ "$SIZE" = tiny ]; then text=de/60:unk2; fi
# row NAME W REST: one at each size; W is the output embedding, which is the input embedding too.
row() {
  local size units name
  for size in 64:0.01 128:0.005 256:0.0025; do
    units=${size%:*}
    name=$units-$1
    add_row $name || continue
    once python -m scripts.ours.optimizers $text adamw-$2 "$3" ${SEED:-1} ${size#*:} "$RUNS/$name/eval.json" $units
  done
}
row none 0.98 adamw
row all 0.999 attention+feed-forward+vectors
row W 0.999 adamw
row attention 0.98 attention
row feed-forward 0.98 feed-forward
row vectors 0.98 vectors
row all-but-W 0.98 attention+feed-forward+vectors
row all-but-attention 0.999 feed-forward+vectors
row all-but-feed-forward 0.999 attention+vectors
row all-but-vectors 0.999 attention+feed-forward
table kinds --changes
