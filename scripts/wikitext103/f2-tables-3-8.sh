#!/usr/bin/env bash
# F²-Softmax, Tables 3 and 8 and Figure 3 (Choi et al. 2020): joint decoding, transfer, other classes.
#
#   rows     f2, f2-joint (the same model), f2-mle (those of Table 1); f2-transfer, which begins with f2-mle, a model of the
#            ordinary softmax; f2-equal-frequency-N, f2-equal-token-N
#   takes    23 to 36 hours of an H200, 1.8 to 2.8 for each of 13 trainings; 27 GB
#   differs  the paper's numbers are of Melo-Lyrics and texts drawn from the top 20, ours of WikiText-103 and the top 3, so
#            that they cannot be compared. Where you have the lyrics: LYRICS=1 DATA=DIR, a folder of train, valid and test
#            (configs/wikitext103/size/f2-lyrics.yaml; not at small). The paper transfers a model of 10 GB of news. Figure 3
#            has no numbers, and does not say how far it goes past MefMax's number of classes, at the star: N is 2, 4, 8, 16,
#            32; at small to 16, since one token makes up 3% of its text
. "$(dirname -- "$0")/../env.sh"
size=$(size f2) k=3 pieces='' seed=${SEED:+--seed $SEED} numbers="2 4 8 16 32"
if [ "$SIZE" = small ]; then numbers="2 4 8 16"; fi
if [ -n "${LYRICS:-}" ]; then
  [ -n "$DATA" ] || fail "found LYRICS without DATA; expected the folder of the lyrics: train, valid and test"
  size=$(size f2-lyrics) k=20 pieces="--vocabulary 40000"
fi

corpus data/wikitext103-sentencepiece wikitext103/prepare.sh --tokenizer sentencepiece $pieces
config=wikitext103/f2 shared=size=$size
train wikitext103/mle f2-mle $shared
variant f2
variant f2-transfer checkpoint.finetune_from_model=$RUNS/f2-mle/checkpoint_best.pt
for assignment in equal-frequency equal-token; do
  for classes in $numbers; do
    variant f2-$assignment-$classes model.f2_assignment=$assignment model.f2_classes=$classes
  done
done

measure() { # measure ROW MODEL [OPTION…]
  local run=$RUNS/$1 model=$RUNS/$2
  once agg-fairseq eval-lm $model --data $data/data-bin --json $run/ppl.json
  once agg-fairseq generate-lm $model --data $data/data-bin --topk $k $seed "${@:3}" -o $run/top$k.jsonl
  once agg-fairseq text-metrics $run/top$k.jsonl --name $1 --data $data/data-bin --json $run/texts.json
}
for row in $rows; do
  if [ $row = f2-mle ]; then measure $row $row; else measure $row $row --f2-decoding sample-class; fi
  if [ $row = f2 ]; then measure f2-joint f2 --f2-decoding joint; fi
done
table f2-tables-3-8
case $rows in *-equal-*) plot class-sweep $(in_folders texts.json) $(in_folders ppl.json) f2-figure-3 ;; esac
