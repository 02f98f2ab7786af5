#!/usr/bin/env bash
# F²-Softmax, Tables 1 (a), 2 (a), 10 (a) (Choi et al. 2020): sampled and greedy texts, WikiText-103.
# Of the same models: Tables 4 and 9 (a), Figure 2, texts of the appendix; and Table 5 (a), the size of the corpus.
#
#   rows     f2-mle, f2-ul-token, f2: 12 layers, 200,000 updates (configs/wikitext103/size/f2.yaml); f2-face, from f2-mle, and
#            f2-ul-token-seq, from f2-ul-token: 1,500 updates
#   takes    6 to 9 hours of an H200, 1.8 to 2.8 for each of the three
#   differs  Tables (b) need Melo-Lyrics, which the paper links and which cannot be downloaded from here. In Table 10, many
#            cells of UL-token+seq have two numbers in the copy at hand, of which the second is taken; one at top-20 is
#            unreadable. KLD is of our texts from the human ones, Σ p_human log(p_human / p); the paper does not say which.
#            Figure 2: the paper gives the 40% of frequent and the 10% of very rare tokens; the 30% and 20% between are ours.
#            FACE counts the outputs of previous updates; its authors' code, those of the batch at hand as well.
#            Table 5: the paper does not say how it counts words: WikiText-103 has 103,227,021 with ends of lines, and the
#            paper says 113,655,420. Articles are headings of the first level, between blank lines
. "$(dirname -- "$0")/../env.sh"
size=$(size f2) seed=${SEED:+--seed $SEED}
[ -z "${LYRICS:-}" ] || fail "found LYRICS; expected f2-tables-3-8, whose numbers are of Melo-Lyrics"

corpus data/wikitext103-sentencepiece wikitext103/prepare.sh --tokenizer sentencepiece
headings='{ n += found && /^ *$/; found = !text && /^ = [^=].* = $/; text = !/^ *$/ } END { print n + 0 }'
for split in train test valid; do
  print awk "$headings" $data/text/$split
  print wc -w $data/text/$split
done
table f2-table-5
train wikitext103/mle f2-mle size=$size
train wikitext103/face f2-face size=$size checkpoint.finetune_from_model=$RUNS/f2-mle/checkpoint_best.pt
train wikitext103/ul f2-ul-token size=$size
train wikitext103/ul-sequence f2-ul-token-seq size=$size checkpoint.finetune_from_model=$RUNS/f2-ul-token/checkpoint_best.pt
train wikitext103/f2 f2 size=$size

eval_lm ppl.json
for row in $rows; do
  sampled='' greedy=''
  if [ $row = f2 ]; then sampled="--f2-decoding sample-class" greedy="--f2-decoding greedy-class"; fi
  continue_texts $row $row greedy $greedy
  for k in 3 5 10 20; do continue_texts $row $row top$k --topk $k $seed $sampled; done
  once agg-fairseq generate-lm $RUNS/$row --data $data/data-bin --topk 3 $seed $sampled \
    --prefixes $here/f2-table-4.txt $bpe -o $RUNS/$row/table-4.jsonl
done
table f2-table-1
table f2-table-2
table f2-table-10
plot token-shares $(in_folders top3.json) f2-figure-2

# Table 9 (a): of the seven measures PPL, KLD, MSJ-3, SB-3, Dist-3, Rep and Uniq of greedy texts, those won and lost
print python "$here/f2_table_9.py" $RUNS $rows
table f2-table-9

# Table 4 and texts of the appendix: the paper's prefixes, as WikiText-103 has them, with the very rare tokens per word of
# each continuation.
print python "$root/scripts/texts.py" $data $(in_folders table-4.jsonl)
table f2-table-4
