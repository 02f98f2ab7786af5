#!/usr/bin/env bash
# What fine-tuning on a new text does to the tokens that do not occur there (docs/fine-tuning.md).
#
#   data   WikiText-2 in 8,000 sub-words; the new text: NEW, a folder of the files train, valid and test, or the documentation of Python
#   rows   before: 2 layers of 64, 6,120 updates of 1,024 tokens; the others 1,000 updates on from it, at a learning rate of
#          0.001 (-low), 0.003 or 0.01 (-high). 10 minutes, and 3 each, on a core of an AMD EPYC
RUNS=${RUNS:-runs/fine-tuning} SIZE=paper
. "$(dirname -- "$0")/../env.sh"
config=cures/mle
corpus $RUNS/old wikitext2/prepare.sh --tokenizer sentencepiece --vocabulary ${VOCABULARY:-8000}
old=$data
variant before $beta2 optimization.max_update=6120 optimization.lr=[0.01] lr_scheduler.end_learning_rate=0.001
DATA=${NEW:-}
corpus $RUNS/new text/prepare.sh --tokens-of $old

further="checkpoint.finetune_from_model=$RUNS/before/checkpoint_best.pt optimization.max_update=1000 $beta2"
agg="criterion._name=agg criterion.agg_rare_fraction=0.5 criterion.agg_window=1000"
absent="criterion._name=freeze_rare criterion.freeze_below=1e-9" untied=model.share_decoder_input_output_embed=false
for rate in -low:0.001:0.0001 -high:0.01:0.001 :0.003:0.0003; do
  IFS=: read -r suffix first last <<< "$rate"
  shared="$further optimization.lr=[$first] lr_scheduler.end_learning_rate=$last"
  variant adam$suffix
  variant agg$suffix $agg
  variant frozen-absent$suffix $absent
  variant untied$suffix $untied
  variant agg-untied$suffix $agg $untied
done
variant adam-0.98 "optimizer.adam_betas='(0.9,0.98)'"
# Training on old text as well: random lines of it, as 1, 5 and 10% of the words
once shuf --random-source=$old/encoded/train $old/encoded/train '>' $RUNS/shuffled
for percent in 1 5 10; do
  mix=$RUNS/mix-$percent
  once awk -v p=$percent 'FNR == NR { new += NF; print; next } drawn * (100 - p) < new * p { drawn += NF; print }' \
    $data/encoded/train $RUNS/shuffled '>' $mix/train
  once fairseq-preprocess --only-source --srcdict $old/data-bin/dict.txt --trainpref $mix/train \
    --validpref $data/encoded/valid --testpref $data/encoded/test --destdir $mix/data-bin '>' $mix/preprocess.output
  data=$mix variant old-$percent
done

for run in $(folders); do
  for text in old new; do
    once python "$here/fine_tuning.py" measure $run --before $RUNS/before --old $old --new $data --text $text \
      --json $run/$text.json
  done
done
print python "$here/fine_tuning.py" table $RUNS $rows
