#!/usr/bin/env bash
# F²-Softmax, Table 10 (a) (Choi et al. 2020): texts drawn from the top 3, 5, 10 and 20 tokens, WikiText-103.
#
#   rows     f2-mle, f2-face, f2-ul-token, f2-ul-token-seq, f2: those of Tables 1 and 2, which f2-tables-1-2.sh trains
#   takes    no training
#   differs  the numbers of UL-token+seq are doubtful: in the copy at hand, many cells of this row have two numbers, of which
#            the second is taken; one cell at top-20 is unreadable
. "$(dirname -- "$0")/../env.sh"
seed=${SEED:+--seed $SEED} rows=${MODELS:-f2-mle f2-face f2-ul-token f2-ul-token-seq f2}

corpus data/wikitext103-sentencepiece wikitext103/prepare.sh --tokenizer sentencepiece
for row in $rows; do
  run=$RUNS/$row decoding=''
  if [ $row = f2 ]; then decoding="--f2-decoding sample-class"; fi
  for k in 3 5 10 20; do
    once $run/top$k.jsonl agg-fairseq generate-lm $run --data $data/data-bin --topk $k $seed $decoding -o $run/top$k.jsonl
    once $run/top$k.json agg-fairseq text-metrics $run/top$k.jsonl --name $row --data $data/data-bin --json $run/top$k.json
  done
done
table f2-table-10
