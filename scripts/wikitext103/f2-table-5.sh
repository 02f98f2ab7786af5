#!/usr/bin/env bash
# F²-Softmax, Table 5 (a) (Choi et al. 2020): the size of WikiText-103. Nothing is trained.
#
#   differs  the paper does not say how it counts words: WikiText-103 has 103,227,021 with ends of lines, and the paper says
#            113,655,420. Articles are headings of the first level. Table 5 (b) needs Melo-Lyrics
. "$(dirname -- "$0")/../env.sh"
corpus data/wikitext103-sentencepiece wikitext103/prepare.sh --tokenizer sentencepiece
for split in train test valid; do
  text=$data/text/$split
  print grep -c '^ = [^=].* = $' $text || true # 1, where there is none
  print wc -w $text
done
table f2-table-5
