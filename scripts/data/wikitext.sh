# Sourced by the prepare.sh of a WikiText corpus, which says where it is and what the digests of its files are.
# shellcheck disable=SC2154 # variables of preparation.sh and of that prepare.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/language_model.sh"
tokenizer=${tokenizer:-$usual_tokenizer}
hub=https://huggingface.co/datasets/Salesforce/wikitext/resolve/b08601e04326c79dfdd32d625aee71d232d685c3

read_text() {
  local split source=$from files="$archive.zip, or ${shards[*]/#/$archive/}"
  if [ -z "$from" ]; then
    source=$downloads/$archive.zip
    if ! (fetch "$archive.zip" "$zip_sha256" https://wikitext.smerity.com); then
      say "trying the Hugging Face hub"
      source=$downloads/$archive
      for name in "${shards[@]}"; do fetch "$archive/$name" '' "$hub/$archive"; done
    fi
  fi
  if [ -f "$source" ]; then
    mkdir "$1/archive"
    tar -xf "$source" -C "$1/archive" 2> /dev/null || python -m zipfile -e "$source" "$1/archive" 2> /dev/null ||
      fail "$source: found no archive that can be unpacked; expected $archive.zip; if it was downloaded, remove it"
    source=$1/archive
  fi
  for split in train valid test; do find_text "$source" "$split" > "$1/$split"; done
  rm -rf "$1/archive"
  grep -q '<unk>' "$1/train" || fail "$from: found no <unk>, as in the raw version; expected $archive"
  for published in "train $train_digest" "valid $valid_digest" "test $test_digest"; do
    split=${published% *}
    if is_digest "$1/$split" "${published#* }"; then continue; fi
    say "warning: wiki.$split.tokens is not that of $archive"
    [ -n "$from" ] || fail "remove $downloads/$archive* and run this again"
  done
}

# find_text FOLDER SPLIT: prints the text, from a file of words or from those of the hub.
find_text() {
  local file rows=${2/valid/validation}
  file=$(find "$1" -name "wiki.$2.tokens" -print -quit)
  if [ -n "$file" ]; then
    cat "$file"
  elif ls "$1/$rows"-*.parquet > /dev/null 2>&1; then
    python -m scripts.data.plain_text parquet "$1/$rows"-*.parquet
  else
    fail "${from:-$1}: found no wiki.$2.tokens and no $rows-*.parquet; expected $archive, not its raw version"
  fi
}

sources=()
if [ -f "$from" ]; then sources=("$from"); fi
if [ -d "$from" ]; then mapfile -t sources < <(find "$from" -name 'wiki.*.tokens' -o -name '*.parquet' | sort); fi
if [ -n "$from" ] && [ ${#sources[@]} = 0 ]; then
  fail "--from: found no archive at $from, and no wiki.*.tokens or parquet files in it; expected $archive"
fi
prepare "$corpus" "${sources[@]}"
