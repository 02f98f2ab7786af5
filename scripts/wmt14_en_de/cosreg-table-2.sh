#!/usr/bin/env bash
# CosReg, Table 2 (Gao et al. 2019): translation, WMT14 English to German and back. Figures 1 (a), 2 and 3 (a);
# section 3.2 and Appendix C: the types below 1e-4; is 0 in the convex hull of the hidden states?
#
#   rows     cosreg-base-mle, cosreg-base-cosreg, cosreg-de-en-mle, cosreg-de-en-cosreg: 100,000 updates of 25,000 tokens
#            (configs/wmt14_en_de/size/vaswani-base.yaml); cosreg-big-mle, cosreg-big-cosreg (vaswani-big.yaml), at
#            SIZE=paper alone
#   takes    44 to 56 hours of an H200: 2.6 to 4.0 each, big 17 to 20; 115 GB, of which each of big 48
#   differs  the mean of the last 5 checkpoints is measured, of big the last 20, as by Vaswani et al. The paper says "tokenized
#            case-sensitive BLEU"; ours is of Moses' tokens, of German with compounds split, with beam 4 and fairseq's length
#            penalty of 0.6 (its formula is not that of Vaswani et al.). Others are quoted
. "$(dirname -- "$0")/../env.sh"
corpus data/wmt14_en_de wmt14_en_de/prepare.sh
for config in mle cosreg; do
  train wmt14_en_de/$config cosreg-base-$config size=$(size vaswani-base)
done
base=$rows
for config in mle cosreg; do
  train wmt14_en_de/$config cosreg-de-en-$config size=$(size vaswani-base) task.source_lang=de task.target_lang=en
  if [ "$SIZE" = paper ]; then train wmt14_en_de/$config cosreg-big-$config size=vaswani-big; fi
done

for row in $rows; do
  case $row in
    *-big-*) translate $row 20 en de ;;
    *-de-en-*) translate $row 5 de en ;;
    *) translate $row 5 en de ;;
  esac
done
table cosreg-table-2
rows=$base
if [ -n "$rows" ]; then
  models=$(in_folders averaged.pt)
  print python "$here/hidden_states.py" $data/data-bin $models
  plot projection $models --name $rows --data $data/data-bin cosreg-figure-2a
  plot singular-values $models --name $rows cosreg-figure-2b
fi
plot frequencies $data/data-bin cosreg-figure-3a
