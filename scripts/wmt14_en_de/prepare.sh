#!/usr/bin/env bash
# usage: bash scripts/wmt14_en_de/prepare.sh [OPTION…]
#
# Prepares WMT14 English-German for fairseq-train, or any parallel corpus, in the steps of fairseq's own script and that of
# Yu et al. (2022): normalizes punctuation (except in the test split), tokenizes as Moses does, learns sub-words on both
# languages by subword-nmt and applies them by fastBPE, removes training pairs in which a side is longer than 250 sub-words,
# or more than 1.5 times as long as the other, and binarizes with one dictionary for both, for either direction.
#   --from DIR         download nothing (1.7 GB): a folder of {train,valid,test}.{en,de}, a sentence per line, or else
#                      of WMT's five archives; samples of these get a warning
#   --source L --target L   the languages of another corpus that is given by --from (default: en, de)
#   --validation V     given: the validation split of the corpus, newstest2012 and newstest2013 (default); train: every
#                      100th training pair, which is left out of the training split, as in Yu et al. (2022)
#   --tokenizer T      moses (default); sentencepiece: learns sub-words on the plain text, and keeps all pairs
#   --vocabulary N     number of merges, or of sub-words of sentencepiece (default: 37000, as the papers)
#   --output DIR       the prepared folder (default: data/wmt14_en_de; with --validation train, data/wmt14_en_de-agg)
#   --workers N        processes (default: one per core)
# To continue after an interruption, run the same command again. When the folder has a manifest.json it is complete: with
# data-bin for fairseq-train, reference for `agg-fairseq bleu LOG --reference DIR/reference/test.de --moses de`, and
# tokenizer/codes. You may remove its folders plain, tokenized and text. Downloads are kept in data/downloads.
. "$(dirname -- "${BASH_SOURCE[0]}")/../data/preparation.sh"
parse from source target validation tokenizer vocabulary output workers -- "$@"
source=${source:-en} target=${target:-de}
case $source$target in *[!a-zA-Z_]*) fail "found --source $source --target $target; expected names of letters" ;; esac
names=({train,valid,test}.{"$source","$target"})
tokenizer=${tokenizer:-moses} vocabulary=${vocabulary:-37000} validation=${validation:-given} corpus=wmt14_en_de
archives=${from:-$downloads} official=true
statmt=https://www.statmt.org hub=https://huggingface.co/datasets/wmt
wmt13=("$statmt/wmt13" "$hub/wmt13/resolve/8e5ec410581dd0ae8039a038c2ae866915e2a47c")
wmt14=("$statmt/wmt14" "$hub/wmt14-data/resolve/0e64fcc0d910c9e1c5c2ae91541096155d0f2e2f")
dev=("$statmt/wmt14" https://data.statmt.org/wmt{17,19}/translation-task) # one each year, with earlier years' test sets

# each_archive FUNCTION: calls it with the name, the digests and the folders of each archive of the shared task. Digests:
# TensorFlow Datasets, url_checksums/wmt14_translate.txt; of the test sets, also sacrebleu's table of data sets.
each_archive() {
  "$1" training-parallel-europarl-v7.tgz 0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7 "${wmt13[@]}"
  "$1" training-parallel-commoncrawl.tgz c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5 "${wmt13[@]}"
  "$1" training-parallel-nc-v9.tgz cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485 "${wmt14[@]}"
  "$1" dev.tgz "88ba3fc60b2278d59277122e1c7dd6e7 9d5ff04a28496b7796904ea65e50e3837bab14dbdca88b1e063105f17513dca9
    7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7" "${dev[@]}"
  "$1" test-full.tgz a8cd784e006feb32ac6f3d9ec7eb389a "${wmt14[0]}"
}

check() {
  [ -f "$archives/$1" ] || fail "--from: found no ${names[0]} in $archives, nor $1; expected ${names[*]}, or WMT's archives"
  is_digest "$archives/$1" "$2" || { say "warning: $1 is not WMT's" && official=false; }
}

# sentences SPLIT LANGUAGE: prints them, from a file of the user or out of WMT's archives.
sentences() {
  local year side=src
  if [ "$corpus" != wmt14_en_de ]; then python -m scripts.data.plain_text text "$from/$1.$2"; return; fi
  if [ "$2" = de ]; then side=ref; fi
  case $1 in
    train)
      member training-parallel-europarl-v7.tgz text "training/europarl-v7.de-en.$2"
      member training-parallel-commoncrawl.tgz text "commoncrawl.de-en.$2"
      member training-parallel-nc-v9.tgz text "training/news-commentary-v9.de-en.$2" ;;
    valid)
      for year in 2012 2013; do # plain text in some of the versions, SGML in others
        member dev.tgz text "dev/newstest$year.$2" 2> /dev/null || member dev.tgz sgm "dev/newstest$year-$side.$2.sgm"
      done ;;
    test) member test-full.tgz sgm "test-full/newstest2014-deen-$side.$2.sgm" ;;
  esac
}

# member ARCHIVE FORMAT NAME: prints the sentences of a file in an archive.
member() { tar -xzOf "$archives/$1" "$3" | python -m scripts.data.plain_text "$2"; }

make_plain() {
  local split language n m
  for split in train valid test; do
    for language in $source $target; do
      case $split-$validation in
        train-train) sentences train "$language" | awk 'NR % 100' ;;
        valid-train) sentences train "$language" | awk 'NR % 100 == 0' ;;
        *) sentences "$split" "$language" ;;
      esac > "$1/$split.$language"
    done
    n=$(wc -l < "$1/$split.$source") m=$(wc -l < "$1/$split.$target")
    [ "$n" = "$m" ] && [ "$n" != 0 ] || fail "$split: found $n and $m sentences; expected as many"
  done
}

make_tokenized() {
  encode moses - "$output/plain" "$1" "${names[@]:0:4}"
  encode moses-as-it-is - "$output/plain" "$1" "${names[@]:4}"
}

make_tokenizer() { # on the whole training split, as in fairseq's script
  if [ "$tokenizer" = moses ]; then
    cat "$output"/tokenized/train.{"$source","$target"} | TQDM_DISABLE=1 subword-nmt learn-bpe -s "$vocabulary" > "$1/codes"
  else
    cat "$output"/plain/train.{"$source","$target"} > "$output/.train"
    python -m scripts.data.learn_sentencepiece "$output/.train" "$vocabulary" "$1/sentencepiece.model" \
      normalization_rule_name=nmt_nfkc
  fi
}

make_text() {
  if [ "$tokenizer" = sentencepiece ]; then
    encode sentencepiece "$output/tokenizer" "$output/plain" "$1" "${names[@]}"
    return
  fi
  encode bpe "$output/tokenizer" "$output/tokenized" "$1" "${names[@]}"
  clean "$1/train"
  if [ "$validation" = train ]; then clean "$1/valid"; fi
}

clean() { # as clean-corpus-n.perl -ratio 1.5 PREFIX en de OUTPUT 1 250
  paste "$1.$source" "$1.$target" | awk -F '\t' -v first="$1.$source.clean" -v second="$1.$target.clean" '
    { n = split($1, words, " "); m = split($2, words, " ") }
    n >= 1 && m >= 1 && n <= 250 && m <= 250 && n <= 1.5 * m && m <= 1.5 * n { print $1 > first; print $2 > second }'
  mv "$1.$source.clean" "$1.$source" && mv "$1.$target.clean" "$1.$target"
}

make_reference() { # pairs that are cleaned have none
  cp "$output"/plain/test.{"$source","$target"} "$1"
  if [ "$validation" = given ]; then cp "$output"/plain/valid.{"$source","$target"} "$1"; fi
}

make_data-bin() {
  binarize "$1" --source-lang "$source" --target-lang "$target" --joined-dictionary \
    --trainpref "$output/text/train" --validpref "$output/text/valid" --testpref "$output/text/test"
}

case $validation in
  given) output=${output:-data/$corpus} ;;
  train) output=${output:-data/$corpus-agg} ;;
  *) fail "--validation: found $validation; expected given or train" ;;
esac
case $tokenizer in
  moses) kind=subword_nmt ;;
  sentencepiece) kind=sentencepiece ;;
  *) fail "--tokenizer: found $tokenizer; expected moses or sentencepiece" ;;
esac
settings=("tokenizer=$tokenizer" "validation=$validation" "vocabulary=$vocabulary")
if [ "$source-$target" != en-de ]; then settings+=("pair=$source-$target"); fi
if [ -f "$from/train.$source" ]; then
  corpus=$(basename "$from") official=false
  for name in "${names[@]}"; do [ -f "$from/$name" ] || fail "--from: found no $name in $from"; done
  settings+=("from=$(cat "${names[@]/#/$from/}" | sha256sum)")
elif [ "$source-$target" != en-de ]; then
  fail "--source, --target: found no train.$source in ${from:-(no --from)}; expected ${names[*]}"
elif [ -n "$from" ]; then
  each_archive check
  settings+=("official=$official")
fi
use "$output" "${settings[@]}"
if [ -z "$from" ] && [ ! -d "$output/plain" ]; then files=$(each_archive echo | cut -d" " -f1 | paste -sd" ") && each_archive fetch; fi
stage plain
if [ "$tokenizer" = moses ]; then stage tokenized; fi
for name in tokenizer text reference data-bin; do stage "$name"; done
finish "$corpus" "$tokenizer" "$kind"
entries=$(($(wc -l < "$output/data-bin/dict.$source.txt") + 4))
say "$entries entries in the dictionary; $(wc -l < "$output/text/train.$source") of $(wc -l < "$output/plain/train.$source") pairs kept"
if [ "$official$validation$tokenizer$vocabulary" = truetrainmoses37000 ] && [ "$entries" != 40624 ]; then
  say "warning: the dictionary of Yu et al. (2022), Table 12, has 40624 entries"
fi
