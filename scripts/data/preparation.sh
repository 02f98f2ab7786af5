# Sourced by each prepare.sh: options, downloads, and stages in folders that appear whole or not at all, so that a
# preparation that was interrupted goes on when it is run again.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../in_venv.sh"

# parse NAME… -- ARGUMENT…: sets a variable for each option, `tokens_of` for --tokens-of, empty if it is not given.
parse() {
  local names="" name
  while [ "$1" != -- ]; do names+=" --$1" && printf -v "${1//-/_}" '' && shift; done
  shift
  while [ $# -gt 0 ]; do
    case $1 in --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;; esac
    case "$names " in *" $1 "*) ;; *) fail "found $1; expected$names; see --help" ;; esac
    [ $# -gt 1 ] || fail "$1: found no value"
    name=${1#--}
    printf -v "${name//-/_}" %s "$2"
    shift 2
  done
  case ${workers:=$(nproc)}${vocabulary:=}${lines:=} in *[!0-9]*) fail "--workers, --vocabulary, --lines: expected whole numbers" ;; esac
  from=$(absolute "${from:-}")
  downloads=$(absolute data/downloads)
}

# absolute PATH: the path, of characters that no program mistakes (fairseq-preprocess splits paths at commas).
absolute() {
  local path=$1
  case $path in '' | /*) ;; *) path=$PWD/$path ;; esac
  case $path in *[!a-zA-Z0-9/._+=-]*) fail "found the path '$path'; expected letters, digits and /._+=- only" ;; esac
  echo "$path"
}

# use FOLDER SETTING…: sets `output`, and waits until no other run works there, nor what is left of one.
use() {
  output=$(absolute "$1")
  ensure_venv
  export PATH="$root/.venv/bin:$PATH" PYTHONPATH=$root PYTHONSAFEPATH=1
  mkdir -p "$output"
  exec 9>> "$output/.lock" # all processes of this run inherit it
  flock -n 9 || { say "waiting for another run in $output to end" && flock 9; }
  if [ ! -e "$output/settings" ]; then
    [ -z "$(ls "$output")" ] || fail "found other files in $output; expected a new folder"
    echo "${*:2}" > "$output/settings"
  elif [ "$(cat "$output/settings")" != "${*:2}" ]; then
    fail "$output was prepared with other settings: $(cat "$output/settings"); remove it or name another folder"
  fi
  if [ -e "$output/manifest.json" ]; then say "$output is complete" && exit; fi
}

# stage NAME: makes a folder by the function make_NAME, which is given the folder to fill.
stage() {
  if [ -d "$output/$1" ]; then return; fi
  say "$1"
  rm -rf "$output/.partial"
  mkdir "$output/.partial"
  "make_$1" "$output/.partial"
  mv "$output/.partial" "$output/$1"
}

# is_digest FILE DIGESTS: whether a file has one of these MD5, SHA-1 or SHA-256.
is_digest() {
  local digest program
  for digest in $2; do
    case ${#digest} in 32) program=md5sum ;; 40) program=sha1sum ;; *) program=sha256sum ;; esac
    if echo "$digest  $1" | "$program" --check --status; then return; fi
  done
  return 1
}

# fetch NAME DIGESTS FOLDER…: downloads a file from the first folder (URL) that has it, unless it is there, and goes on
# with what an interrupted download left. The file must have one of the digests, if any are given. `files`: all that are
# needed.
fetch() {
  local file=$downloads/$1 folder
  mkdir -p "$(dirname "$file")"
  for folder in "${@:3}"; do
    if [ -e "$file" ]; then break; fi
    curl -fL --retry 5 --continue-at - --output "$file.partial" "$folder/$(basename "$file")" >&2 || continue
    if [ -n "$2" ] && ! is_digest "$file.partial" "$2"; then
      say "$folder: found another $1 than the published one"
      rm "$file.partial"
    else
      mv "$file.partial" "$file"
    fi
  done
  if [ ! -e "$file" ]; then fail "could not download $1; run this again, or put in $downloads: ${files:-$1}"; fi
  if [ -n "$2" ] && ! is_digest "$file" "$2"; then fail "$file: found another digest than $2; remove the file"; fi
}

encode() { python -m scripts.data.encode "$workers" "$@"; }

# binarize FOLDER OPTION…: runs fairseq-preprocess, quietly unless it fails.
binarize() {
  local log=$1/preprocess.output
  fairseq-preprocess --destdir "$1" --workers "$workers" "${@:2}" > "$log" 2>&1 ||
    fail "fairseq-preprocess failed: $(tail -n 1 "$log")"
}

# finish CORPUS TOKENIZER KIND: writes the manifest, with the files of this kind of sub-words, or words; its digest tells
# this data from other data.
finish() {
  local digest files=''
  case $3 in
    sentencepiece) files=', "sentencepiece_model": "tokenizer/sentencepiece.model"' ;;
    gpt2) files=', "gpt2_encoder_json": "tokenizer/encoder.json", "gpt2_vocab_bpe": "tokenizer/vocab.bpe"' ;;
    subword_nmt) files=', "bpe_codes": "tokenizer/codes"' ;;
  esac
  digest=$(cd "$output" && cat data-bin/*.bin data-bin/*.txt | sha256sum)
  echo "{\"corpus\": \"$1\", \"tokenizer\": \"$2\", \"bpe\": {\"kind\": \"$3\"$files}, \"sha256\": \"${digest%% *}\"}" \
    > "$output/.manifest"
  mv "$output/.manifest" "$output/manifest.json"
  grep -ho '\[.*\] .*\(types\|tokens\).*' "$output/data-bin/preprocess.output" | sed 's/^/prepare: /'
}
