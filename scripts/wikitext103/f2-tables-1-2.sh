#!/usr/bin/env bash
# F²-Softmax, Tables 1 (a) and 2 (a) (Choi et al. 2020): sampled and greedy texts, WikiText-103.
# Of the same models: Tables 4 and 9 (a), Figure 2, texts of the appendix.
#
#   rows     f2-mle, f2-face, f2-ul-token, f2-ul-token-seq, f2: 12 layers, 200,000 updates (configs/wikitext103/size/f2.yaml)
#   takes    11 GPU hours in all, by 6 operations per parameter and token at 50 TFLOP/s (half precision); not run yet
#   differs  the texts of Table 4 and of the appendix are the first of the test split; the paper's have other prefixes.
#            Tables 1 (b), 2 (b), 9 (b) need Melo-Lyrics, which the paper links and which cannot be downloaded from here
. "$(dirname -- "$0")/../env.sh"
size=$(size f2) seed=${SEED:+--seed $SEED}

corpus data/wikitext103-sentencepiece wikitext103/prepare.sh --tokenizer sentencepiece
train wikitext103/mle f2-mle size=$size
train wikitext103/face f2-face size=$size checkpoint.finetune_from_model=$RUNS/f2-mle/checkpoint_best.pt
train wikitext103/ul f2-ul-token size=$size
train wikitext103/ul-sequence f2-ul-token-seq size=$size checkpoint.finetune_from_model=$RUNS/f2-ul-token/checkpoint_best.pt
train wikitext103/f2 f2 size=$size

for row in $rows; do
  run=$RUNS/$row sampled='' greedy=''
  if [ $row = f2 ]; then sampled="--f2-decoding sample-class" greedy="--f2-decoding greedy-class"; fi
  once $run/ppl.json agg-fairseq eval-lm $run --data $data/data-bin --json $run/ppl.json
  once $run/top3.jsonl agg-fairseq generate-lm $run --data $data/data-bin --topk 3 $seed $sampled -o $run/top3.jsonl
  once $run/greedy.jsonl agg-fairseq generate-lm $run --data $data/data-bin $greedy -o $run/greedy.jsonl
  for texts in top3 greedy; do
    once $run/$texts.json agg-fairseq text-metrics $run/$texts.jsonl --name $row --data $data/data-bin --json $run/$texts.json
  done
done
table f2-table-1
table f2-table-2
once $RUNS/f2-figure-2.png agg-fairseq plot token-shares $(in_folders top3.json) -o $RUNS/f2-figure-2.png

# Table 9 (a): of the seven measures PPL, KLD, MSJ-3, SB-3, Dist-3, Rep and Uniq of greedy texts, those won and lost.
print python "$here/f2_table_9.py" $RUNS $rows
table f2-table-9

# Table 4 and texts of the appendix, with the share of very rare tokens in each.
print python "$root/scripts/texts.py" $data $(in_folders top3.jsonl)
table f2-table-4
