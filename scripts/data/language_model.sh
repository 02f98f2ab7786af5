# Options:
#   --lines N       only the first N lines of each split, for a miniature
#   --tokenizer T   words: all words of the text, or the most frequent --vocabulary N;
#                   sentencepiece: --vocabulary N sub-words (default: 30000, as Choi et al. 2020; of scripts/text 8000);
#                   gpt2: GPT-2's 50,257 byte-level sub-words, as ids, or those of its first --vocabulary N merges;
#                   the dictionary has those that occur
#   --tokens-of DIR instead: the tokenizer and the dictionary of another prepared folder, to fine-tune its models
#   --output DIR    the prepared folder (default: data/CORPUS-TOKENIZER)
#   --workers N     processes (default: one per core)
# To continue after an interruption, run the same command again. When the folder has a manifest.json it is complete, and
# you may remove its folders text and encoded. Downloaded files are kept in data/downloads, for every preparation.

# shellcheck disable=SC2154 # variables of preparation.sh
help=${BASH_SOURCE[0]}
. "$(dirname -- "${BASH_SOURCE[0]}")/preparation.sh"
parse from lines tokenizer vocabulary tokens-of output workers -- "$@"
trainer=() # options of sentencepiece

# prepare CORPUS FILE…: stages text, tokenizer, encoded and data-bin of a corpus that make_text writes, from files.
prepare() {
  if [ -n "$tokens_of" ]; then
    tokens_of=$(absolute "$tokens_of")
    [ -f "$tokens_of/manifest.json" ] || fail "--tokens-of: found no manifest.json there; expected a prepared folder"
    tokenizer=$(sed 's/.*"tokenizer": "\([a-z0-9]*\)".*/\1/' "$tokens_of/manifest.json")
  fi
  if [ "$tokenizer" = sentencepiece ]; then vocabulary=${vocabulary:-${usual_vocabulary:-30000}}; fi
  case $tokenizer in
    words | sentencepiece | gpt2) ;;
    *) fail "--tokenizer: found $tokenizer; expected words, sentencepiece or gpt2" ;;
  esac
  use "${output:-data/$1-$tokenizer}" "corpus=$1" "tokenizer=$tokenizer" ${vocabulary:+"vocabulary=$vocabulary"} \
    ${lines:+"lines=$lines"} ${2:+"from=$(cat "${@:2}" | sha256sum)"} ${tokens_of:+"tokens-of=$(sha256sum < "$tokens_of/manifest.json")"}
  stage text
  [ "$tokenizer" = words ] || stage tokenizer
  stage encoded
  stage data-bin
  finish "$1" "$tokenizer" "$tokenizer"
}

make_text() {
  read_text "$1"
  if [ -n "$lines" ]; then sed -i "$((lines + 1)),\$d" "$1"/{train,valid,test}; fi
}

make_tokenizer() {
  if [ -n "$tokens_of" ]; then cp "$tokens_of"/tokenizer/* "$1"; return; fi
  if [ "$tokenizer" = sentencepiece ]; then
    python -m scripts.data.learn_sentencepiece "$output/text/train" "$vocabulary" "$1/sentencepiece.model" "${trainer[@]}"
    return
  fi
  # Digests: tiktoken's tiktoken_ext/openai_public.py. fairseq's mirror has OpenAI's files.
  local mirrors=(
    https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe https://openaipublic.blob.core.windows.net/gpt-2/encodings/main
  )
  local files="gpt2_bpe/encoder.json gpt2_bpe/vocab.bpe"
  fetch gpt2_bpe/encoder.json 196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783 "${mirrors[@]}"
  fetch gpt2_bpe/vocab.bpe 1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5 "${mirrors[@]}"
  cp "$downloads"/gpt2_bpe/{encoder.json,vocab.bpe} "$1"
  if [ -n "$vocabulary" ]; then sed -i "$((vocabulary + 2)),\$d" "$1/vocab.bpe"; fi # after a line of its version
}

make_encoded() { encode "$tokenizer" "$output/tokenizer" "$output/text" "$1" train valid test; }

make_data-bin() {
  local text=$output/encoded
  case $tokenizer$vocabulary in words?*) set -- "$1" --nwordssrc "$vocabulary" ;; esac
  if [ -n "$tokens_of" ]; then set -- "$1" --srcdict "$tokens_of/data-bin/dict.txt"; fi
  binarize "$@" --only-source --trainpref "$text/train" --validpref "$text/valid" --testpref "$text/test"
}
