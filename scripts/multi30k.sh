#!/usr/bin/env bash
# Trains a small English-German translation model on Multi30k with the ordinary softmax and with the factorised output
# layer, same seed and updates, and prints BLEU on the test set. Resumes what was interrupted.
set -euo pipefail
program=multi30k
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/multi30k.sh --data DIR [options]

  --data DIR        folder of train.en, train.de, valid.en, valid.de, test.en, test.de
  --output DIR      where everything goes (default: runs/multi30k)
  --updates N       updates of each model (default: 1000)
  --vocabulary N    sub-words of both languages together (default: 6000)
  --dimension N     size of embeddings and layers, a multiple of 4 (default: 128)
  --jobs N          models trained side by side, sharing the cores (default: 1)
  --seed N          random seed of both models (default: 1)

Prints BLEU with sacreBLEU's signature, and writes it to DIR beside the checkpoints and translations.
USAGE
}

data='' output=runs/multi30k updates=1000 vocabulary=6000 dimension=128 jobs=1 seed=1
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --data | --output | --updates | --vocabulary | --dimension | --jobs | --seed)
      [ $# -ge 2 ] || fail "$1: expected a value after it; see --help" ;;
    *) fail "found the argument '$1'; expected one of those that --help lists" ;;
  esac
  printf -v "${1#--}" '%s' "$2"
  shift 2
done
[ -n "$data" ] || fail "found no --data; expected the folder of train.en and train.de"
expect_whole_numbers updates vocabulary dimension jobs seed
for file in {train,valid,test}.{en,de}; do
  [ -f "$data/$file" ] || fail "--data: found no $file in '$data'; expected the files of Multi30k, task 1"
done
make_absolute data output
data=$(cd -- "$data" && pwd)

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
bin=$PWD/.venv/bin
user_dir=$("$bin/agg-fairseq" user-dir)
keep_settings "data=$data updates=$updates vocabulary=$vocabulary dimension=$dimension seed=$seed"

prepare() {
  [ ! -f "$output/data-bin/done" ] || return 0
  rm -rf -- "$output/data-bin" "$output/text"
  mkdir -p -- "$output/text"
  echo "multi30k: learning $vocabulary sub-words of both languages, binarising"
  quietly subwords "$bin/python" scripts/multi30k/subwords.py "$data" "$output/text" --vocabulary "$vocabulary"
  quietly preprocess "$bin/fairseq-preprocess" -s en -t de --trainpref "$output/text/train" \
    --validpref "$output/text/valid" --testpref "$output/text/test" --destdir "$output/data-bin" --joined-dictionary \
    --workers 2
  touch -- "$output/data-bin/done"
}

train_model() { # NAME OPTION…
  local name=$1
  shift
  train "$name" -s en -t de \
    --encoder-layers 3 --decoder-layers 3 --encoder-embed-dim "$dimension" --decoder-embed-dim "$dimension" \
    --encoder-ffn-embed-dim $((2 * dimension)) --decoder-ffn-embed-dim $((2 * dimension)) \
    --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.1 \
    --label-smoothing 0.1 --max-tokens 4096 --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 \
    --lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 400 --warmup-init-lr 1e-7 \
    --max-update "$updates" --seed "$seed" --save-interval-updates "$(tenth "$updates")" --keep-interval-updates 1 \
    --log-interval 10 -- "$@"
}

translate() { # NAME CHECKPOINT OPTION…: BLEU of the test set, with its signature
  local name=$1 checkpoint=$2
  shift 2
  quietly "$name-generate" "$bin/fairseq-generate" "$output/data-bin" --user-dir "$user_dir" -s en -t de \
    --path "$checkpoint" --beam 5 --batch-size 64 --required-batch-size-multiple 1 --remove-bpe sentencepiece "$@"
  sed -n 's/^D-//p' "$output/$name-generate.log" | sort -n | cut -f 3- > "$output/$name.de"
  "$bin/sacrebleu" "$data/test.de" --input "$output/$name.de" --metrics bleu > "$output/$name.bleu.json"
  "$bin/python" - "$name" "$output/$name.bleu.json" <<'PYTHON'
import json
import sys

score = json.load(open(sys.argv[2]))
print(f"{sys.argv[1]:<20} BLEU {score['score']:.1f}   {score['signature']}")
PYTHON
}

prepare
share_cores "$jobs"
failed=0
train_model mle --arch transformer --criterion mle &
mle=$!
[ "$jobs" -gt 1 ] || wait "$mle" || failed=1
train_model f2 --arch transformer_f2 --criterion f2_softmax &
wait "$!" || failed=1
[ "$jobs" -eq 1 ] || wait "$mle" || failed=1
[ "$failed" -eq 0 ] || { echo "multi30k: error: a training failed; see above" >&2; exit 1; }

translate mle "$output/mle/checkpoint_best.pt"
translate f2 "$output/f2/checkpoint_best.pt"
translate f2-greedy-class "$output/f2/checkpoint_best.pt" --model-overrides "{'f2_decoding': 'greedy-class'}"
echo "multi30k: checkpoints and translations are in $output"
