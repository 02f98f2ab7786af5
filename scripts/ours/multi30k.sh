#!/usr/bin/env bash
# The methods of the translation tables, AGG with a bias, and F²-Softmax: English to German, Multi30k (docs/results.md).
#
#   data   DATA, the folder of {train,valid,test}.{en,de} of Multi30k, task 1, in 6,000 sub-words
#   rows   3 + 3 layers of 128, 1,000 updates (configs/wmt14_en_de/size/tiny.yaml); f2-greedy-class is f2, decoded greedily
RUNS=${RUNS:-runs/multi30k} SIZE=paper
. "$(dirname -- "$0")/../env.sh"
[ -n "$DATA" ] || fail "found no DATA; expected the folder of Multi30k, task 1"
corpus $RUNS wmt14_en_de/prepare.sh --tokenizer sentencepiece --vocabulary 6000
config=wmt14_en_de/mle
shared="size=tiny optimization.max_update=1000 lr_scheduler.warmup_updates=400 checkpoint.save_interval_updates=50
  checkpoint.keep_interval_updates=5"
agg="criterion._name=agg criterion.agg_rare_fraction=0.3 criterion.agg_window=50" subset='model.train_subset=${dataset.train_subset}'
variant mle
variant cosreg criterion._name=cosreg
# The rank is the same share of the vocabulary as 27,000 of about 40,000.
variant agps criterion._name=agps criterion.agps_rare_rank=4000 criterion.agps_mu1=50 criterion.agps_mu2=15
variant agg-0.3 $agg
# All options that a layer reads: fairseq-hydra-train knows no defaults of translation models.
variant bias-agg-0.3 $agg model._name=transformer_unigram model.unigram_bias=learned "$subset"
variant f2 model._name=transformer_f2 criterion._name=f2_softmax model.f2_assignment=mefmax \
  model.f2_classes=0 model.f2_decoding=joint "$subset" 'model.save_dir=${checkpoint.save_dir}' \
  'model.restore_file=${checkpoint.restore_file}'

translate() { # translate ROW MODEL [OPTION…]
  local run=$RUNS/$1 averaged=$RUNS/$2/averaged.pt
  once agg-fairseq average-checkpoints $RUNS/$2 --last 5 --by update --force -o $averaged
  once fairseq-generate $data/data-bin --user-dir $plugin --path $averaged -s en -t de --beam 5 --batch-size 64 \
    --remove-bpe sentencepiece --required-batch-size-multiple 1 "${@:3}" '>' $run/generate.log
  once agg-fairseq bleu $run/generate.log --reference $data/reference/test.de --json $run/bleu.json
  once agg-fairseq isotropy $averaged --json $run/isotropy.json
}
for row in $rows; do
  translate $row $row
  if [ $row = f2 ]; then translate f2-greedy-class f2 --model-overrides "{'f2_decoding': 'greedy-class'}"; fi
done
table multi30k
