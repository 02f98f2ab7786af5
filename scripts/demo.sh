#!/usr/bin/env bash
# Trains a small language model with plain likelihood (mle) and with adaptive gradient gating (agg), or with any other
# criterions, same seed and updates, and shows what became of the token embeddings. Resumes what was interrupted.
set -euo pipefail
program=demo
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/demo.sh [options]

  --corpus python|wikitext   python (default): text that comes with Python, cut into sub-words;
                             wikitext: files named as in the WikiText archives (wiki.train.tokens, …), word level
  --data DIR                 folder of the wikitext files
  --output DIR               where everything goes (default: runs/demo, or runs/wikitext)
  --updates N                updates of each model (default: 600, wikitext 1000)
  --vocabulary N             sub-words, or most frequent words, kept (default: 8000, wikitext 16000)
  --dimension N              size of embeddings and layers, a multiple of 4 (default: 128)
  --rare-fractions "F …"     share of the vocabulary that agg treats as rare; a model for each (default: 0.05)
  --model "NAME OPTION …"    a model of its own, with these options of fairseq-train; may be repeated, and replaces
                             mle and agg: --model "mle --criterion mle" --model "ul --criterion unlikelihood"
  --jobs N                   models trained side by side, sharing the cores (default: 1)
  --seed N                   random seed of all models (default: 1)

Prints a table and writes it to DIR beside the logs, the checkpoints and three pictures.
USAGE
}

corpus=python data='' output='' updates='' vocabulary='' fractions=0.05 seed=1 dimension=128 jobs=1 models=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --corpus | --data | --output | --updates | --vocabulary | --rare-fractions | --seed | \
      --dimension | --model | --jobs)
      [ $# -ge 2 ] || fail "$1: expected a value after it; see --help" ;;
    *) fail "found the argument '$1'; expected one of those that --help lists" ;;
  esac
  case $1 in
    --corpus) corpus=$2 ;;
    --data) data=$2 ;;
    --output) output=$2 ;;
    --updates) updates=$2 ;;
    --vocabulary) vocabulary=$2 ;;
    --rare-fractions) fractions=$2 ;;
    --seed) seed=$2 ;;
    --dimension) dimension=$2 ;;
    --model) models+=("$2") ;;
    --jobs) jobs=$2 ;;
  esac
  shift 2
done

case $corpus in
  python) : "${output:=runs/demo}" "${updates:=600}" "${vocabulary:=8000}" ;;
  wikitext) : "${output:=runs/wikitext}" "${updates:=1000}" "${vocabulary:=16000}" ;;
  *) fail "--corpus: found '$corpus'; expected python or wikitext" ;;
esac
expect_whole_numbers updates vocabulary seed dimension jobs
[[ $fractions =~ [^[:space:]] ]] || fail "--rare-fractions: found none; expected numbers between 0 and 1"
for fraction in $fractions; do
  [[ $fraction =~ ^0?\.[0-9]*[1-9][0-9]*$ ]] || fail "--rare-fractions: found '$fraction'; expected numbers between 0 and 1"
done
[ $((dimension % 4)) -eq 0 ] || fail "--dimension: found $dimension; expected a multiple of 4, the number of heads"
if [ ${#models[@]} -eq 0 ]; then
  models=("mle --criterion mle")
  for fraction in $fractions; do
    models+=("agg-$fraction --criterion agg --agg-rare-fraction $fraction")
  done
fi
names=()
for model in "${models[@]}"; do
  name=${model%% *}
  case " ${names[*]} data-bin text settings " in
    *" $name "*) fail "--model: found the name '$name' twice, or it is taken; expected another name for each model" ;;
  esac
  names+=("$name")
  [[ $model != *$'\n'* && $model =~ ^[A-Za-z0-9][A-Za-z0-9._-]*\ +(--.*\ )?--criterion\  ]] ||
    fail "--model: found '$model'; expected a name of letters, digits, '.', '_', '-', then options with --criterion"
done
if [ "$corpus" = wikitext ]; then
  [ -n "$data" ] || fail "--corpus wikitext: found no --data; expected the folder of wiki.train.tokens"
  for split in train valid test; do
    [ -f "$data/wiki.$split.tokens" ] || fail "--data: found no wiki.$split.tokens in '$data'; expected the WikiText files"
  done
  make_absolute data
  data=$(cd -- "$data" && pwd)
fi
make_absolute output

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
bin=$PWD/.venv/bin
user_dir=$("$bin/agg-fairseq" user-dir)

interval=$((updates < 10 ? updates : 10)) # between two lines of the log
keep_settings "corpus=$corpus data=$data updates=$updates vocabulary=$vocabulary seed=$seed dimension=$dimension"

prepare() {
  [ ! -f "$output/data-bin/done" ] || return 0
  local text=$output/text limit=()
  rm -rf -- "$output/data-bin" "$text"
  if [ "$corpus" = python ]; then
    echo "demo: collecting Python's own documentation"
    "$bin/python" scripts/demo/corpus.py "$text" --vocabulary "$vocabulary"
  else
    mkdir -p -- "$text"
    for split in train valid test; do cp -- "$data/wiki.$split.tokens" "$text/$split"; done
    limit=(--nwordssrc "$vocabulary")
  fi
  echo "demo: binarising"
  quietly preprocess "$bin/fairseq-preprocess" --only-source --trainpref "$text/train" --validpref "$text/valid" \
    --testpref "$text/test" --destdir "$output/data-bin" --workers 2 "${limit[@]}"
  touch -- "$output/data-bin/done"
}

train_model() { # NAME OPTION…
  local name=$1
  shift
  train "$name" --task language_modeling \
    --arch transformer_lm --decoder-layers 2 --decoder-embed-dim "$dimension" --decoder-input-dim "$dimension" \
    --decoder-output-dim "$dimension" --decoder-ffn-embed-dim $((4 * dimension)) --decoder-attention-heads 4 \
    --share-decoder-input-output-embed --dropout 0.1 \
    --sample-break-mode none --tokens-per-sample 128 --max-tokens 2048 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --weight-decay 0.01 \
    --lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 100 --warmup-init-lr 1e-7 \
    --max-update "$updates" --seed "$seed" --save-interval-updates "$(tenth "$updates")" --keep-interval-updates 1 \
    --embedding-stats-interval "$interval" --log-interval "$interval" -- "$@"
}

prepare
running=0 failed=0
share_cores "$jobs"
for model in "${models[@]}"; do
  read -r -a words <<< "$model"
  if [ "$running" -ge "$jobs" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  [ "$failed" -eq 0 ] || break
  train_model "${words[@]}" &
  running=$((running + 1))
done
for ((; running > 0; running--)); do wait -n || failed=1; done # also after a failure: no training is left behind
[ "$failed" -eq 0 ] || { echo "demo: error: a training failed; see above" >&2; exit 1; }

checkpoints=() logs=()
for name in "${names[@]}"; do
  checkpoints+=("$output/$name/checkpoint_best.pt")
  if grep -q rare_tokens -- "$output/$name/train.log"; then logs+=("$output/$name/train.log"); fi
done
echo
"$bin/agg-fairseq" eval-lm "$output/data-bin" --path "${checkpoints[@]}" --json "$output/eval-lm.json" |
  tee -- "$output/.table.md"
mv -- "$output/.table.md" "$output/table.md"
echo
"$bin/agg-fairseq" plot projection "${checkpoints[@]}" --data "$output/data-bin" --output "$output/projection.png"
"$bin/agg-fairseq" plot singular-values "${checkpoints[@]}" --output "$output/singular-values.png"
if [ ${#logs[@]} -gt 0 ]; then
  "$bin/agg-fairseq" plot rare-tokens "${logs[@]}" --output "$output/rare-tokens.png"
fi
echo "demo: the table, the logs and the pictures are in $output; all of it on one page, with texts:"
folders=()
for name in "${names[@]}"; do folders+=("$output/$name"); done
printf '%q ' "$bin/agg-fairseq" report "${folders[@]}" --data "$output/data-bin" --output "$output/report.html"
echo
