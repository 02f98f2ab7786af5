#!/usr/bin/env bash
# CosReg, Table 1 (Gao et al. 2019): an LSTM language model, AWD-LSTM, on WikiText-2. Figure 3 (b).
#
#   rows     awd-mle, awd-cosreg: 750 epochs (configs/wikitext2/size/paper.yaml); awd-mle-finetune, awd-cosreg-finetune: on from
#            their best checkpoints; the same with a continuous cache, -cache
#   takes    36 hours of a GPU, 9 each, by 6 operations per parameter and token at 10 TFLOP/s (single precision)
#   differs  34 million parameters: the paper prints 24, which is AWD-LSTM's size for another corpus. A split is read as one
#            text, with a state that is carried on
. "$(dirname -- "$0")/../env.sh"
size=$SIZE

corpus data/wikitext2-words wikitext2/prepare.sh --tokenizer words
for criterion in mle cosreg; do
  train wikitext2/cosreg-$criterion awd-$criterion size=$size
  train wikitext2/cosreg-$criterion-finetune awd-$criterion-finetune size=$size \
    checkpoint.finetune_from_model=$RUNS/awd-$criterion/checkpoint_best.pt
done

evaluate() { # evaluate ROW MODEL [OPTION…]: AWD-LSTM is no part of the package
  for split in valid test; do
    once python "$root/examples/awd_lstm/evaluate.py" $RUNS/$2/checkpoint_best.pt --data $data/data-bin --split $split \
      "${@:3}" --json $RUNS/$1/$split.json
  done
}
for row in $rows; do
  evaluate $row $row
  case $row in *-finetune) evaluate $row-cache $row --cache-size 3785 ;; esac # as by the authors of AWD-LSTM
done
table cosreg-table-1
plot frequencies $data/data-bin cosreg-figure-3b
