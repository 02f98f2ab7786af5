"""Prepares WikiText-103 or WikiText-2 for fairseq-train."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agg_fairseq.errors import UserError

from ..command import Parser, run
from . import gpt2_bpe, sentencepiece_bpe, wikitext_source
from .files import count_lines, digest, read_lines, write_lines
from .prepared_folder import SPLITS, add_common_options, binarize, dictionary_size, prepare_folder
from .wikitext_source import CORPORA, tokens_file

VOCABULARY = 30_000  # sub-words of sentencepiece: Choi et al. (2020), Table 6
BPE: Mapping[str, Mapping[str, str]] = {
    "words": {},
    "gpt2": {"gpt2_encoder_json": "tokenizer/encoder.json", "gpt2_vocab_bpe": "tokenizer/vocab.bpe"},
    "sentencepiece": {"sentencepiece_model": f"tokenizer/{sentencepiece_bpe.MODEL}"},
}
"""The tokenizers, and where the files of each are, by the options of `agg_fairseq`'s commands that take sub-words."""
DESCRIPTION = """\
Prepares {name} for fairseq-train: downloads it (WikiText-103: 190 MB), tokenizes it and binarizes it. To continue after
an interruption, run the same command again: finished stages are skipped. The folder is complete when it has a
manifest.json. Then you may remove its folders text and encoded.
"""
TOKENIZERS = """\
tokenizers:
  gpt2           GPT-2's 50,257 byte-level sub-words, as ids; the dictionary has those that occur. As in Yu et al.
                 (2022), each line is encoded separately, without spaces at its ends, and empty lines are kept
  sentencepiece  BPE learned on the training split; --vocabulary is the number of sub-words
  words          the words of the text: all of them, or the most frequent ones; --vocabulary is their number

what --from takes:
  the zip archive of the corpus; or a folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens; or a folder
  with the parquet files of Salesforce/wikitext on the Hugging Face hub. A text that differs from the published one,
  such as a sample of it, is accepted with a warning. The raw version is refused.
"""


def prepare(
    key: str,
    output: Path,
    *,
    tokenizer: str,
    source: Path | None = None,
    vocabulary: int | None = None,
    downloads: Path = Path("data/downloads"),
    workers: int = 1,
) -> None:
    """Makes what is missing of a prepared folder of one of `CORPORA`; the options are those of the command line."""
    corpus = CORPORA[key]
    size = vocabulary or (VOCABULARY if tokenizer == "sentencepiece" else None)

    def text(folder: Path) -> None:
        if source is None:
            wikitext_source.download(corpus, downloads, folder)
        else:
            wikitext_source.take(corpus, source, folder)

    def sub_words(folder: Path) -> None:
        if tokenizer == "gpt2":
            gpt2_bpe.take(downloads, folder)
        else:
            sentencepiece_bpe.learn(read_lines(output / "text" / tokens_file("train")), size, workers, folder)

    def encoded(folder: Path) -> None:
        encode = {"gpt2": gpt2_bpe.encode, "sentencepiece": sentencepiece_bpe.encode}.get(tokenizer)
        for split in SPLITS:
            lines = read_lines(output / "text" / tokens_file(split))
            write_lines(folder / split, encode(output / "tokenizer", lines) if encode else lines)

    def data_bin(folder: Path) -> None:
        limit = [f"--nwordssrc={size}"] if tokenizer == "words" and size else []
        binarize(output / "encoded", folder, workers, ["--only-source", *limit])

    def finish() -> tuple[dict[str, object], list[str]]:
        dictionary = dictionary_size(output / "data-bin" / "dict.txt")
        tokens = {}  # as language models count, with the end of each line
        for path in (output / "encoded" / split for split in SPLITS):
            tokens[path.name] = count_lines(path) + sum(len(line.split()) for line in read_lines(path))
        listed = ", ".join(f"{split} {count:,}" for split, count in tokens.items())
        print(f"wikitext: {output}: {dictionary:,} entries in the dictionary; tokens with ends of lines: {listed}")
        facts = {
            "corpus": key,
            "official": not wikitext_source.differences(corpus, output / "text"),
            "tokenizer": tokenizer,
            "bpe": {"kind": tokenizer, **BPE[tokenizer]},
            "dictionary": dictionary,
            "tokens": tokens,
        }
        texts = [*(f"text/{tokens_file(split)}" for split in SPLITS), *(f"encoded/{split}" for split in SPLITS)]
        return facts, [*texts, *BPE[tokenizer].values(), "data-bin/dict.txt"]

    stages = {"text": text, "tokenizer": sub_words, "encoded": encoded, "data-bin": data_bin}
    if tokenizer == "words":
        del stages["tokenizer"]
    settings = {"corpus": key, "from": None, "tokenizer": tokenizer, **({} if size is None else {"vocabulary": size})}
    if source is not None:  # what identifies the text, wherever it is
        settings["from"] = {file.name: digest(file) for file in wikitext_source.given_files(corpus, source)}
    prepare_folder("wikitext", output, settings, stages, finish)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    key, *arguments = sys.argv[1:] if arguments is None else arguments
    corpus = CORPORA[key]
    parser = Parser(f"{key}/prepare.sh", DESCRIPTION.format(name=corpus.name), epilog=TOKENIZERS)
    parser.add_argument(
        "--tokenizer", choices=tuple(BPE), default=corpus.tokenizer, help="see below (default: %(default)s)"
    )
    add_common_options(
        parser,
        source="the corpus, as you have it (see below); then it is not downloaded",
        vocabulary=f"number of sub-words of --tokenizer sentencepiece (default: {VOCABULARY:,}, as Choi et al. 2020), "
        "or of words of --tokenizer words (default: all)",
        output=f"data/{key}-TOKENIZER",
    )
    options = parser.parse_args(arguments)
    if options.vocabulary is not None and options.tokenizer == "gpt2":
        raise UserError("--vocabulary: found it with --tokenizer gpt2; expected --tokenizer sentencepiece or words")
    options.output = options.output or Path("data") / f"{key}-{options.tokenizer}"
    prepare(key, **vars(options))


if __name__ == "__main__":
    sys.exit(run("wikitext", main))
