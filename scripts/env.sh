#
# Each row of a table is a training in a folder of its own, with what is measured of it. All is made once, so that tables
# share what they have in common, and an interrupted script goes on when it is run again. No table was run at the papers'
# sizes: "takes" has the hours of one NVIDIA H200, estimated from what was measured (docs/reproduction.md), and disk above 20 GB.
#
#   SIZE=paper      or small: miniatures of WikiText-2 and Multi30k in the papers' regime (docs/reproduction.md), 1 to 10
#                   minutes per row on a CPU core; or tiny: tries the commands, in minutes per row on 2 CPU cores
#   RUNS=runs/SIZE  folder of the trainings and tables
#   DATA=DIR        folder of wiki.{train,valid,test}.tokens, {train,valid,test} or {train,valid,test}.{en,de}, or a prepared
#                   one. Default: data/CORPUS, downloaded if it is missing; at small, AGG_DATA/wikitext-2 and
#                   AGG_DATA/multi30k; at tiny, for language models, Python's documentation
#   MODELS="a b"    only these rows
#   SEED=1 JOBS=2   of all random numbers; trainings side by side, each on its share of the GPUs (default: 1)
#   GPUS=4          GPUs of each training (default: all, divided among the JOBS); given, also those of size tiny use GPUs
#   ALPHA=0.05      threshold of AGG, instead of the configuration's; WORDS="a b", of tables of words
#   DRY_RUN=1       print all commands and start none, which needs no GPU
#   KEY=VALUE …     as arguments: options of every training, such as common.bf16=true
#
# Several seeds: for SEED in 1 2 3; do SEED=$SEED RUNS=runs/seed-$SEED bash scripts/…/TABLE.sh; done
#                python scripts/table.py scripts/…/TABLE.tsv runs/seed-*
set -euo pipefail
help=${BASH_SOURCE[0]}
. "$(dirname -- "${BASH_SOURCE[0]}")/in_venv.sh"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
SIZE=${SIZE:-paper} JOBS=${JOBS:-1} RUNS=${RUNS:-runs/${SIZE:-paper}} DATA=${DATA:-} MODELS=${MODELS:-} WORDS=${WORDS:-}
GPUS=${GPUS:-} overrides=("$@")
data='' bpe='' rows='' known='' config='' shared=''

in_plan() { [ "${DRY_RUN:-}" = plan ]; }
# show WORD…: prints a command as one could type it.
show() { local words; printf -v words '%q ' "$@"; echo "${words/ \\> / > }"; }

[ -z "${MODEL:-}" ] || fail "found MODEL=$MODEL; expected MODELS"
for word in "$@"; do
  case $word in [A-Z]*=*) fail "found $word after the script; expected it before: $word bash $0" ;; esac
done
case $SIZE in paper | small | tiny) ;; *) fail "found SIZE=$SIZE; expected paper, small or tiny" ;; esac
case $RUNS$DATA${MODELS// /}$root in *[!a-zA-Z0-9/._+=-]*) fail "found other characters than letters, digits and /._+=- in" \
  "RUNS, DATA, MODELS or the path of this repository; expected a plain path" ;; esac
case $JOBS:$GPUS in 0* | *:0* | *[!0-9:]*) fail "found JOBS=$JOBS GPUS=$GPUS; expected whole numbers of 1 or more" ;; esac
if [ -n "$DATA" ] && [ ! -d "$DATA" ]; then fail "found no folder DATA=$DATA; expected text, or a prepared corpus"; fi

# check_models: each of MODELS has to be the name of a row.
check_models() {
  [ $? = 0 ] || return
  for name in $MODELS; do
    case "$known " in *" $name "*) ;; *) fail "MODELS: found $name; expected some of$known" ;; esac
  done
}

if in_plan; then
  trap check_models EXIT
  echo "export PATH=$root/.venv/bin:\$PATH PYTHONPATH=$root"
else # all commands, of which the configurations are checked before any data is made
  plan=$(DRY_RUN=plan bash -- "$0" "$@")
  (in_venv scripts.train --check --place "0/$JOBS" ${DRY_RUN:+--dry-run} <<< "$plan")
  if [ -n "${DRY_RUN:-}" ]; then printf '%s\n' "$plan"; exit; fi
fi
export PATH="$root/.venv/bin:$PATH" PYTHONPATH=$root PYTHONSAFEPATH=1 PYTHONWARNINGS=ignore
if [ "$JOBS" -gt 1 ]; then export OMP_NUM_THREADS=$((($(nproc) + JOBS - 1) / JOBS)); fi

beta2="optimizer.adam_betas='(0.9,0.999)'" # of all parameters, in place of 0.98
alpha=${ALPHA:+criterion.agg_alpha=$ALPHA}
if [ -n "$alpha" ] && [ "$SIZE" = tiny ]; then alpha="$alpha criterion.agg_rare_fraction=null"; fi

# size NAME: the size of a configuration, such as agg, at SIZE. What language models are measured on is that of the AGG
# authors' commands: perplexity of the last 112 of each 512 tokens (block and context), Uniq of whole blocks.
size() { case $SIZE in paper) echo "$1" ;; small) echo "$1-small" ;; tiny) echo tiny ;; esac; }
block="--tokens-per-sample 512 --as-published" context="--context-window 400"
case $SIZE in
  small) block="--tokens-per-sample 64 --as-published" context="--context-window 32" ;;
  tiny) block="--tokens-per-sample 128 --as-published" context="--context-window 100" ;;
esac

# corpus FOLDER PREPARE [OPTION…]: prepares a corpus by scripts/PREPARE; sets `data` to its folder, and `bpe` to options
# that say how its words are split. It is in RUNS if it is made from DATA. At small it is a sixteenth of WikiText-2, or
# Multi30k; at tiny the documentation of Python, or DATA, in few sub-words.
corpus() {
  local prepare=$2 kind=sentencepiece from=$DATA vocabulary=2000
  data=$1
  shift 2
  case $SIZE:$prepare:$from in
    small:wmt*)
      from=${from:-${AGG_DATA:+$AGG_DATA/multi30k}} data=$RUNS/data/wmt
      [ -n "$from" ] || fail "found no DATA and no AGG_DATA; expected the folder of Multi30k"
      set -- --vocabulary $vocabulary ;;
    small:*)
      from=${from:-${AGG_DATA:+$AGG_DATA/wikitext-2}} data=$RUNS/data/$2 prepare=wikitext2/prepare.sh
      if [ "$2" = words ]; then vocabulary=4000; fi
      set -- "$@" --vocabulary $vocabulary --lines 2300 ;;
    tiny:wmt*:) fail "found no DATA; expected a folder of {train,valid,test}.{en,de}, such as Multi30k" ;;
    tiny:wmt*) data=$RUNS/data/wmt && set -- --vocabulary 6000 ;;
    tiny:*:) data=$RUNS/data/text prepare=text/prepare.sh && set -- --vocabulary 8000 ;;
    tiny:*) data=$RUNS/data/text && set -- --tokenizer sentencepiece --vocabulary 8000 ;;
    *:) ;;
    *) case $data in "$RUNS" | "$RUNS"/*) ;; *) data=$RUNS/$data ;; esac ;;
  esac
  case $prepare in wmt*) kind=subword_nmt ;; esac
  if [ -f "$from/train" ]; then prepare=text/prepare.sh; fi
  for word in "$@"; do
    case $word in gpt2 | words | sentencepiece) kind=$word ;; esac
  done
  if [ -f "$DATA/manifest.json" ]; then
    data=$DATA
    kind=$(sed -n 's/.*"kind": "\([a-z0-9_]*\)".*/\1/p' "$DATA/manifest.json")
  else
    set -- bash "$root/scripts/$prepare" "$@" ${from:+--from "$from"} --output "$data"
    if in_plan; then show "$@"; else "$@" >&2; fi
  fi
  bpe="--bpe $kind"
  case $kind in
    gpt2) bpe="$bpe --gpt2-encoder-json $data/tokenizer/encoder.json --gpt2-vocab-bpe $data/tokenizer/vocab.bpe" ;;
    sentencepiece) bpe="$bpe --sentencepiece-model $data/tokenizer/sentencepiece.model" ;;
    subword_nmt) bpe="$bpe --bpe-codes $data/tokenizer/codes" ;;
  esac
}

# add_row NAME: adds a name to `rows`, if MODELS has it; fails if not.
add_row() {
  known="$known $1"
  case " ${MODELS:-$1} " in *" $1 "*) rows="$rows $1" ;; *) return 1 ;; esac
}

# variant NAME [KEY=VALUE…]: trains `config`, changed by the options `shared` and by these.
variant() { train $config "$1" $shared "${@:2}"; }

# train CONFIG NAME [KEY=VALUE…]: trains configs/CONFIG into $RUNS/NAME and adds NAME to `rows`, if MODELS has that name.
started=() places=() # names of trainings; processes of those that run, by place, 0 to JOBS - 1
plugin=$root/agg_fairseq/fairseq_plugin/user_dir/agg_plugin
train() {
  local name=$2 folder=$RUNS/$2 place=0 changed="${overrides[*]-}"
  add_row "$name" || return 0
  if [ "$SIZE" != paper ]; then changed="SIZE=$SIZE${changed:+ $changed}"; fi
  case " $* " in *" ${alpha%% *} "*) changed="${ALPHA:+ALPHA=$ALPHA }$changed" ;; esac
  set -- "configs/$1" "task.data=$data/data-bin" "checkpoint.save_dir=$folder" "${@:3}" ${SEED:+"common.seed=$SEED"}
  set -- bash "$root/scripts/train.sh" "$@" ${overrides[@]+"${overrides[@]}"} ${GPUS:+--gpus "$GPUS"}
  if in_plan; then show "$@"; return; fi
  if [ -e "$folder/done" ]; then say "$name is trained already"; return; fi
  for start in "$@"; do # another training, which has to be done
    case $start in checkpoint.finetune_from_model=*) [ -e "$(dirname -- "${start#*=}")/done" ] || finish ;; esac
  done
  while kill -0 "${places[place]:-none}" 2> /dev/null; do
    place=$((place + 1))
    if [ "$place" = "$JOBS" ]; then wait -n || finish; place=0; fi
  done
  say "training $name: tail -f $folder/output.log"
  mkdir -p -- "$folder"
  set -m # with a process group of its own, which `stop` ends
  "$@" --place "$place/$JOBS" ${changed:+--changed "$changed"} > "$folder/output.log" 2>&1 &
  set +m
  places[place]=$!
  started+=("$name")
  if [ "$JOBS" = 1 ]; then finish; fi
}

# finish: waits for the trainings that run; all of those that were started have to be done then.
finish() {
  local name
  wait
  for name in ${started[@]+"${started[@]}"}; do
    [ -e "$RUNS/$name/done" ] && continue
    tail -n 15 -- "$RUNS/$name/output.log" >&2
    fail "training $name failed; its output is in $RUNS/$name/output.log; run this again to go on"
  done
  started=()
}

stop() { for job in $(jobs -pr); do kill -- "-$job"; done; wait; exit 130; }
trap stop INT TERM

# folders, in_folders FILE: the folders of all rows, and a file in each. checkpoints ROW UPDATES …: those of a row, after
# `finish`.
folders() { for row in $rows; do echo "$RUNS/$row"; done; }
in_folders() { for row in $rows; do echo "$RUNS/$row/$1"; done; }
checkpoints() { for updates in "${@:2}"; do echo "$RUNS/$1/"checkpoint_*_"$updates".pt; done; }

# once COMMAND… FILE: runs a command that makes the file which is its last argument, or with '>' before it, prints what is
# to be in it. FILE.made-from says of what it was made; where that is the same, it is not made again.
once() {
  local file=${*: -1} command=("$@") output=/dev/null record
  if in_plan; then show "$@"; return; fi
  if [ "${*: -2:1}" = '>' ]; then command=("${@:1:$#-2}") output=$file; fi
  finish
  record=$(made_from "$@")
  if [ -e "$file" ] && [ "$(cat "$file.made-from" 2> /dev/null)" = "$record" ]; then return; fi
  say "making $file"
  mkdir -p -- "$(dirname -- "$file")"
  rm -f -- "$file.made-from"
  case $1 in # which print all settings
    fairseq-*) "${command[@]}" > "$output" 2> "$file.errors" || { tail -n 15 -- "$file.errors" >&2 && fail "$1: see $file.errors"; } ;;
    *) "${command[@]}" > "$output" ;;
  esac
  echo "$record" > "$file.made-from"
}

# made_from COMMAND… FILE: a command, without the folders that may move, and the digests of what is recorded of its
# arguments: of trainings their settings, of corpora their manifests, of files that `once` made the same as this.
made_from() {
  local text argument path
  text=$(show "$@")
  text=${text//"$data"/DATA} text=${text//"$RUNS"/RUNS}
  echo "${text//"$root"/}"
  for argument in "${@:1:$#-1}"; do
    for path in "$argument.made-from" {"$argument","${argument%/*}","${argument%/*/*}"}/{settings,manifest}.json; do
      if [ -f "$path" ]; then sha256sum < "$path"; fi
    done
  done
}

# print COMMAND…: runs a command whose output is a part of the table.
print() { if in_plan; then show "$@"; else finish && "$@"; fi; }

# eval_lm [OPTION…] FILE: measures each row by agg-fairseq eval-lm, into FILE in its folder.
eval_lm() {
  for run in $(folders); do
    once agg-fairseq eval-lm "$run" --data "$data/data-bin" "${@:1:$#-1}" --json "$run/${*: -1}"
  done
}

# continue_texts ROW MODEL NAME [OPTION…]: lets a model continue texts, and measures them: NAME.jsonl and .json of the row.
continue_texts() {
  local texts=$RUNS/$1/$3
  once agg-fairseq generate-lm $RUNS/$2 --data $data/data-bin "${@:4}" -o $texts.jsonl
  once agg-fairseq text-metrics $texts.jsonl --name $1 --data $data/data-bin --json $texts.json
}

# plot KIND ARGUMENT… NAME: draws the picture NAME.png.
plot() { once agg-fairseq plot "${@:1:$#-1}" -o "$RUNS/${*: -1}.png"; }

# translate ROW LAST SOURCE TARGET: measures BLEU of a row, of the mean of its last checkpoints.
translate() {
  local run=$RUNS/$1
  once agg-fairseq average-checkpoints $run --last $2 --by update --force -o $run/averaged.pt
  once fairseq-generate $data/data-bin --user-dir $plugin --path $run/averaged.pt -s $3 -t $4 --beam 4 --lenpen 0.6 \
    --remove-bpe --max-tokens 8000 --required-batch-size-multiple 1 '>' $run/generate.log
  once agg-fairseq bleu $run/generate.log --reference $data/reference/test.$4 --moses $4 --json $run/bleu.json
}

# table NAME [OPTION…]: prints NAME.tsv of the script's folder, the numbers of the paper beside those of the rows.
table() { print python "$root/scripts/table.py" "$here/$1.tsv" "$RUNS" "${@:2}"; }
