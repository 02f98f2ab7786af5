#!/usr/bin/env bash
# AGG, Table 3 (Yu et al. 2022): language modeling on WikiText-103. Of the same models: Tables 5, 6, 10, 13, 15, Figure 3.
#
#   rows     mle, agg: GPT-2 medium, 50,000 updates of 32,768 tokens (configs/wikitext103/size/agg.yaml)
#   takes    12 to 14 hours of an H200, 6 to 7 each; 21 GB
#   differs  348 million parameters where the paper says 358; its Uniq of human text, 18920, is the sum 18290. The paper does
#            not say how often it validates; here, with each epoch and every 1,000 updates, and the best checkpoint is measured.
#            At tiny, rare is the rarest 5% at each update instead of an α, and the words are frequent ones
#   needs    for Table 6, the last: MEN.txt, WS353.txt, RG65.txt, RW.txt (word<TAB>word<TAB>score) in AGG_DATA/word-similarity,
#            for example made from data/word-sim of github.com/mfaruqui/eval-word-vectors; those that are missing are left out
. "$(dirname -- "$0")/../env.sh"
words="--words ${WORDS:-homepage Werewolf policymakers}"
if [ "$SIZE" != paper ] && [ -z "$WORDS" ]; then words="--words with from that"; fi

corpus data/wikitext103-gpt2 wikitext103/prepare.sh --tokenizer gpt2
train wikitext103/mle mle size=$(size agg)
train wikitext103/agg agg size=$(size agg) $alpha

# Tables 3 and 10
eval_lm $block $context ppl.json
eval_lm $block uniq.json
table agg-table-3
table agg-table-10

# Figure 3
plot projection $(folders) --data $data/data-bin agg-figure-3ab
plot singular-values $(folders) agg-figure-3c

# Tables 5 and 15: the paper's prefixes of 50 tokens, as WikiText-103 has them, continued greedily as by the authors'
# evaluation.py, with the number of different tokens of each continuation up to its first </s>.
for run in $(folders); do
  once agg-fairseq generate-lm $run --data $data/data-bin --prefixes $here/agg-tables-5-15.txt $bpe -o $run/texts.jsonl
done
print python "$root/scripts/texts.py" $data $(in_folders texts.jsonl)
table agg-tables-5-15

# Table 13; † marks rare tokens, ‡ unseen ones
print agg-fairseq neighbors $(folders) --data $data/data-bin $words $bpe
table agg-table-13

# Table 6. As in the authors' code, sub-words that the dictionary lacks are <unk>, and no pair is left out.
for name in MEN WS353 RG65 RW; do
  if in_plan || [ -f "${AGG_DATA:-}/word-similarity/$name.txt" ]; then datasets="${datasets:-} $name"; continue; fi
  say "left out $name of Table 6: found no AGG_DATA/word-similarity/$name.txt (--help)"
done
for run in ${datasets:+$(folders)}; do
  once agg-fairseq word-similarity $run --data $data/data-bin --datasets $datasets --as-published $bpe --json $run/words.json
done
table agg-table-6
