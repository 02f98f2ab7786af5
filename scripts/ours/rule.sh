#!/usr/bin/env bash
# What a larger β₂ gains on many texts: predicted from counts, and measured (docs/rule.md).
#
#   data   DATA: a folder of multi30k/{train,valid,test}.{de,en} and wikitext-2/wiki.{train,valid,test}.tokens; and the
#          documentation and the standard library of Python. SHAKESPEARE: input.txt of data/tinyshakespeare in
#          github.com/karpathy/char-rnn; without it, its rows are left out
#   rows   2 layers of 64, 20 seconds to 4 minutes each on a core of an AMD EPYC, two and a half hours in all
RUNS=${RUNS:-runs/rule}
. "$(dirname -- "$0")/../env.sh"
export DATA=${DATA:-data}
row() { print python -m scripts.ours.rule "$RUNS" "$@"; }
pair() { row "$@" beta2=0.98 && row "$@" beta2=0.999; }

if [ "$SIZE" = tiny ]; then
  pair de/60:unk2 && row
  exit
fi
# The texts on which the rule was chosen
for epochs in 1 3; do
  for text in de/3 de/3:unk2 wt2/10:bpe4000; do pair $text epochs=$epochs; done
done
for epochs in 1 3 10; do
  for text in wt2/30 docs/4; do pair $text epochs=$epochs; done
done
for epochs in 3 10; do pair de/3:bpe4000 epochs=$epochs; done
for beta2 in 0.95 0.99; do row de/3:unk2 beta2=$beta2; done
pair en/3:unk2
pair wt2/10 epochs=2
pair docs:unk2 epochs=2
pair wt2/10:bpe4000 T=1024
for seed in 1 2 3; do
  # Predicted before they were trained
  for text in docs/2:bpe4000 ${SHAKESPEARE:+"$SHAKESPEARE:bpe2000" "$SHAKESPEARE:unk2"}; do pair "$text" epochs=2 seed=$seed; done
  row docs/2:bpe4000 epochs=2 seed=$seed beta2=0.95
  row docs/2:bpe4000 epochs=2 seed=$seed beta2_of_W=0.999
  pair en/3 seed=$seed
  pair code/3:bpe4000 epochs=1 seed=$seed
  # Words that are seen once or twice, and `<unk>`, which is never a target
  for text in de/6 de/3 de/3:unk2; do pair $text seed=$seed; done
  pair de/6 seed=$seed decay=0.5
  pair de/6 seed=$seed dropout=0.2
  pair de/6 seed=$seed method=agg
  for method in agps bias f2; do row de/6 seed=$seed method=$method beta2=0.999; done
  row de/6 seed=$seed beta2=0.99
done
row
