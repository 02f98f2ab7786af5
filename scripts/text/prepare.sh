#!/usr/bin/env bash
# usage: bash scripts/text/prepare.sh [OPTION…]
#
# Prepares a text for fairseq-train: without --from the documentation that is bundled with every Python, which is the
# corpus of the demo. It is cut into sub-words by sentencepiece (default: 8000).
#   --from DIR      a folder with train, valid and test, plain text in UTF-8
. "$(dirname -- "${BASH_SOURCE[0]}")/../data/language_model.sh"
tokenizer=${tokenizer:-sentencepiece} usual_vocabulary=8000

read_text() {
  if [ -z "$from" ]; then python -m scripts.data.python_documentation "$1"; return; fi
  for split in train valid test; do python -m scripts.data.plain_text text "$from/$split" > "$1/$split"; done
}

files=()
if [ -n "$from" ]; then
  files=("$from"/{train,valid,test})
else # sentencepiece's own defaults
  trainer=(normalization_rule_name=nmt_nfkc character_coverage=0.9995 max_sentence_length=4192)
fi
for file in "${files[@]}"; do [ -f "$file" ] || fail "--from: found no $file; expected train, valid and test"; done
prepare text "${files[@]}"
