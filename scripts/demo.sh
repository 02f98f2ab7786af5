#!/usr/bin/env bash
# Trains a small language model with plain likelihood (mle) and with adaptive gradient gating (agg), same seed and
# updates, and shows what became of the token embeddings. Resumes what was interrupted.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: bash scripts/demo.sh [options]

  --corpus python|wikitext   python (default): text that comes with Python, cut into sub-words;
                             wikitext: files named as in the WikiText archives (wiki.train.tokens, …), word level
  --data DIR                 folder of the wikitext files
  --output DIR               where everything goes (default: runs/demo, or runs/wikitext)
  --updates N                updates of each model (default: 600, wikitext 1000)
  --vocabulary N             sub-words, or most frequent words, kept (default: 8000, wikitext 16000)
  --rare-fractions "F …"     share of the vocabulary that agg treats as rare; a model for each (default: 0.05)
  --seed N                   random seed of all models (default: 1)

Prints a table and writes it to DIR beside the logs, the checkpoints and three pictures.
USAGE
}

fail() { echo "demo: error: $*" >&2; exit 2; }

corpus=python data='' output='' updates='' vocabulary='' fractions=0.05 seed=1
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --corpus | --data | --output | --updates | --vocabulary | --rare-fractions | --seed)
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
  esac
  shift 2
done

case $corpus in
  python) : "${output:=runs/demo}" "${updates:=600}" "${vocabulary:=8000}" ;;
  wikitext) : "${output:=runs/wikitext}" "${updates:=1000}" "${vocabulary:=16000}" ;;
  *) fail "--corpus: found '$corpus'; expected python or wikitext" ;;
esac
for option in updates vocabulary seed; do
  [[ ${!option} =~ ^[1-9][0-9]*$ ]] || fail "--$option: found '${!option}'; expected a whole number from 1"
done
[[ $fractions =~ [^[:space:]] ]] || fail "--rare-fractions: found none; expected numbers between 0 and 1"
for fraction in $fractions; do
  [[ $fraction =~ ^0?\.[0-9]*[1-9][0-9]*$ ]] || fail "--rare-fractions: found '$fraction'; expected numbers between 0 and 1"
done
if [ "$corpus" = wikitext ]; then
  [ -n "$data" ] || fail "--corpus wikitext: found no --data; expected the folder of wiki.train.tokens"
  for split in train valid test; do
    [ -f "$data/wiki.$split.tokens" ] || fail "--data: found no wiki.$split.tokens in '$data'; expected the WikiText files"
  done
  data=$(cd -- "$data" && pwd)
fi
case $output in /*) ;; *) output=$PWD/$output ;; esac  # relative to where the user is

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
bin=$PWD/.venv/bin
user_dir=$("$bin/agg-fairseq" user-dir)
mkdir -p -- "$output"

interval=$((updates < 10 ? updates : 10)) # between two lines of the log
settings="corpus=$corpus data=$data updates=$updates vocabulary=$vocabulary seed=$seed"
if [ -f "$output/settings" ] && [ "$(cat -- "$output/settings")" != "$settings" ]; then
  fail "$output holds a run with other settings ($(cat -- "$output/settings")); remove it or choose another --output"
fi
printf '%s\n' "$settings" > "$output/settings"

quietly() {  # a command whose output matters only if it fails
  local log=$output/$1.log
  shift
  if ! "$@" > "$log" 2>&1; then
    tail -n 20 -- "$log" >&2
    echo "demo: error: $1 failed; its output is in $log" >&2
    exit 1
  fi
}

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

train() {
  local name=$1
  shift
  [ ! -f "$output/$name/done" ] || { echo "demo: $name is trained already"; return 0; }
  mkdir -p -- "$output/$name"
  if ! "$bin/fairseq-train" "$output/data-bin" --user-dir "$user_dir" --task language_modeling \
    --arch transformer_lm --decoder-layers 2 --decoder-embed-dim 128 --decoder-input-dim 128 \
    --decoder-output-dim 128 --decoder-ffn-embed-dim 512 --decoder-attention-heads 4 \
    --share-decoder-input-output-embed --dropout 0.1 \
    --sample-break-mode none --tokens-per-sample 128 --max-tokens 2048 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --weight-decay 0.01 \
    --lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 100 --warmup-init-lr 1e-7 \
    --max-update "$updates" --seed "$seed" --save-dir "$output/$name" --no-epoch-checkpoints \
    --embedding-stats-interval "$interval" --log-interval "$interval" --log-format json \
    --log-file "$output/$name/train.log" \
    "$@" 2>&1 | tee -- "$output/$name/output.log" |
    "$bin/python" scripts/demo/progress.py "$name" "$updates"; then
    tail -n 20 -- "$output/$name/output.log" >&2
    echo "demo: error: training $name failed; its output is in $output/$name/output.log" >&2
    exit 1
  fi
  touch -- "$output/$name/done"
}

prepare
names=(mle)
train mle --criterion mle
for fraction in $fractions; do
  train "agg-$fraction" --criterion agg --agg-rare-fraction "$fraction"
  names+=("agg-$fraction")
done

checkpoints=() logs=()
for name in "${names[@]}"; do checkpoints+=("$output/$name/checkpoint_best.pt"); done
for name in "${names[@]:1}"; do logs+=("$output/$name/train.log"); done
echo
"$bin/agg-fairseq" eval-lm "$output/data-bin" --path "${checkpoints[@]}" --json "$output/eval-lm.json" |
  tee -- "$output/.table.md"
mv -- "$output/.table.md" "$output/table.md"
echo
"$bin/agg-fairseq" plot projection "${checkpoints[@]}" --data "$output/data-bin" --output "$output/projection.png"
"$bin/agg-fairseq" plot singular-values "${checkpoints[@]}" --output "$output/singular-values.png"
"$bin/agg-fairseq" plot rare-tokens "${logs[@]}" --output "$output/rare-tokens.png"
echo "demo: the table, the logs and the pictures are in $output"
