#!/usr/bin/env bash
# Trains one small language model on WikiText-2 with the ordinary softmax and with the factorised output layer, its
# classes assigned in several ways, same seed and updates; lets each continue the test split; and prints the tables of
# docs/results.md. Resumes what was interrupted.
set -euo pipefail
program=f2_softmax
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/f2_softmax.sh --data DIR [options]

  --data DIR        folder of wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens
  --output DIR      where everything goes (default: runs/f2-softmax)
  --updates N       updates of each model (default: 2200)
  --dimension N     size of embeddings and layers, a multiple of 4 (default: 128)
  --topk K          the sampled texts draw from the K likeliest tokens (default: 3)
  --max-texts N     continue only the first N prefixes of the test split (default: all)
  --jobs N          models trained, or texts written, side by side (default: 1)
  --seed N          random seed of all models and texts (default: 1)

Prints perplexities and the measures of the texts, and writes them to DIR beside checkpoints and texts.
USAGE
}

data='' output=runs/f2-softmax updates=2200 dimension=128 topk=3 max_texts='' jobs=1 seed=1
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --data | --output | --updates | --dimension | --topk | --max-texts | --jobs | --seed)
      [ $# -ge 2 ] || fail "$1: expected a value after it; see --help" ;;
    *) fail "found the argument '$1'; expected one of those that --help lists" ;;
  esac
  option=${1#--}
  printf -v "${option//-/_}" '%s' "$2"
  shift 2
done
[ -n "$data" ] || fail "found no --data; expected the folder of wiki.train.tokens"
expect_whole_numbers topk jobs ${max_texts:+max_texts}
make_absolute output

f2='--arch transformer_lm_f2 --criterion f2_softmax'
models=("mle --criterion mle" "f2 $f2") names=(mle f2)
for fixed in "equal-frequency 4" "equal-frequency 18" "equal-token 4" "equal-token 13"; do # mefmax picks 13, of 18
  models+=("${fixed/ /-} $f2 --f2-assignment ${fixed% *} --f2-classes ${fixed#* }")
  names+=("${fixed/ /-}")
done
options=()
for model in "${models[@]}"; do options+=(--model "$model"); done
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
bash "$here/demo.sh" --corpus wikitext --data "$data" --output "$output" --vocabulary 40000 \
  --dimension "$dimension" --updates "$updates" --jobs "$jobs" --seed "$seed" "${options[@]}"

agg=$here/../.venv/bin/agg-fairseq
share_cores "$jobs"
folder=$output/texts${max_texts:+-$max_texts} # of so many texts each, whose names say how they were made
mkdir -p -- "$folder"

continue_texts() { # MODEL SUFFIX OPTION…: writes MODEL-SUFFIX.jsonl, unless it is there and newer than the model
  local text=$folder/$1-$2.jsonl checkpoint=$output/$1/checkpoint_best.pt
  shift 2
  [ ! "$text" -nt "$checkpoint" ] || return 0
  "$agg" generate-lm "$output/data-bin" --path "$checkpoint" --output "$text" --seed "$seed" \
    ${max_texts:+--max-texts "$max_texts"} "$@"
}

running=0 failed=0 texts=()
in_turn() { # runs continue_texts beside at most jobs - 1 others
  texts+=("$folder/$1-$2.jsonl")
  if [ "$running" -ge "$jobs" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  continue_texts "$@" &
  running=$((running + 1))
}
in_turn mle "top$topk" --topk "$topk"
in_turn f2 "top$topk" --topk "$topk" --f2-decoding joint
for name in "${names[@]:1}"; do in_turn "$name" "top$topk-decoupled" --topk "$topk" --f2-decoding sample-class; done
in_turn mle greedy
in_turn f2 greedy --f2-decoding joint
in_turn f2 greedy-decoupled --f2-decoding greedy-class
for ((; running > 0; running--)); do wait -n || failed=1; done
[ "$failed" -eq 0 ] || { echo "f2_softmax: error: some texts could not be written; see above" >&2; exit 1; }

echo
"$agg" text-metrics "${texts[@]}" --data "$output/data-bin" --json "$output/text-metrics.json" |
  tee -- "$output/.text-metrics.md"
mv -- "$output/.text-metrics.md" "$output/text-metrics.md"
echo "f2_softmax: the tables, the texts and the checkpoints are in $output"
