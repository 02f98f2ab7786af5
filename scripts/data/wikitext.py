"""Prepares WikiText-103 or WikiText-2 for fairseq-train.

    python -m scripts.data.wikitext wikitext103 --help

The folder that it makes, each of its folders whole or not at all:

    text/           wiki.{train,valid,test}.tokens
    tokenizer/      the files of the sub-words
    encoded/        the text in sub-words, line by line: what is binarized
    data-bin/       what fairseq-train reads
    manifest.json   written last; text and encoded are not needed any more then
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from agg_fairseq.errors import UserError
from scripts.command import run, set_up

from . import gpt2_bpe, sentencepiece_bpe, wikitext_source
from .parallel_map import in_order
from .prepared_folder import (
    SPLITS,
    add_common_options,
    binarize,
    dictionary_size,
    is_complete,
    is_made,
    positive,
    prepare_folder,
    write_manifest,
)
from .text_files import read_lines, text_size, write_lines
from .wikitext_corpora import CORPORA, Corpus, check, is_official, tokens_file

MEGABYTE = 1_000_000
VOCABULARY = 30_000
"""Sub-words of sentencepiece: Choi et al. (2020), Table 6."""
BPE: Mapping[str, Mapping[str, str]] = {
    "words": {},
    "gpt2": {"gpt2_encoder_json": "tokenizer/encoder.json", "gpt2_vocab_bpe": "tokenizer/vocab.bpe"},
    "sentencepiece": {"sentencepiece_model": f"tokenizer/{sentencepiece_bpe.MODEL}"},
}
"""The tokenizers, and where the files of each are, by the options of `agg_fairseq`'s commands that take sub-words."""
DESCRIPTION = """\
Prepares {name} for fairseq-train: downloads it ({megabytes:.0f} MB), tokenizes it and binarizes it. To continue after
an interruption, run the same command again: finished stages are skipped. The folder is complete when it has a
manifest.json. Then you may remove its folders text and encoded.
{measured}"""
TOKENIZERS = """\
tokenizers:
  gpt2           GPT-2's 50,257 byte-level sub-words, as ids; the dictionary has those that occur. As in Yu et al.
                 (2022), each line is encoded separately, without spaces at its ends, and empty lines are kept
  sentencepiece  BPE learned on the training split; --vocabulary is the number of sub-words
  words          the words of the text: all of them, or the most frequent ones; --vocabulary is their number

what --from takes:
  the zip archive of the corpus; or a folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens; or a folder
  with the parquet files of Salesforce/wikitext on the Hugging Face hub. A text that differs from the published one,
  such as a sample of it, is accepted with a warning. The raw version, and a text without ` @-@ `, are refused. Without
  --from, the downloaded text has to be the published one.
"""


@dataclass(frozen=True)
class Preparation:
    """What is prepared, and how.

    Args:
        key: name of the corpus in `CORPORA`.
        source: what the user has of the corpus; None to download it.
        tokenizer: name of the tokenizer in `BPE`.
        vocabulary: number of sub-words to learn, or of words to keep; None: 30,000 sub-words, or all words.
        bpe_dir: folder of GPT-2's files; None to download them.
        output: the prepared folder.
        downloads: where downloaded files are kept.
        workers: number of processes.
    """

    key: str
    source: Path | None
    tokenizer: str
    vocabulary: int | None
    bpe_dir: Path | None
    output: Path
    downloads: Path
    workers: int

    @property
    def corpus(self) -> Corpus:
        """Where the corpus is found, and how its files are recognized."""
        return CORPORA[self.key]

    @property
    def size(self) -> int | None:
        """Number of sub-words to learn, or of words to keep; None: all that occur."""
        return self.vocabulary or (VOCABULARY if self.tokenizer == "sentencepiece" else None)

    @cached_property
    def _given(self) -> dict[str, str] | None:
        return None if self.source is None else wikitext_source.digests(self.corpus, self.source)

    def settings(self) -> dict[str, object]:
        """Everything that the prepared folder depends on: of a text that the user gave, its content."""
        size = {} if self.size is None else {"vocabulary": self.size}
        return {"corpus": self.key, "from": self._given, "tokenizer": self.tokenizer, **size}

    def stages(self) -> dict[str, Callable[[Path], None]]:
        """How each of the folders is filled, in this order."""
        tokenizer = {} if self.tokenizer == "words" else {"tokenizer": self._tokenizer}
        return {"text": self._text, **tokenizer, "encoded": self._encoded, "data-bin": self._data_bin}

    def _text(self, folder: Path) -> None:
        downloaded = []
        if self.source is None:
            downloaded = wikitext_source.download(self.corpus, self.downloads, folder)
        else:
            wikitext_source.take(self.corpus, self.source, folder)
        check(self.corpus, folder, downloaded)

    def _tokenizer(self, folder: Path) -> None:
        if self.tokenizer == "sentencepiece":
            lines = read_lines(self.output / "text" / tokens_file("train"))
            sentencepiece_bpe.learn(lines, self.size, self.workers, folder)
        elif self.bpe_dir is None:
            gpt2_bpe.download(self.downloads, folder)
        else:
            gpt2_bpe.take(self.bpe_dir, folder)

    def _encoded(self, folder: Path) -> None:
        tokenizer = self.output / "tokenizer"
        encode: Callable[[list[str]], list[str]] = list
        if self.tokenizer == "gpt2":
            encode = partial(gpt2_bpe.encode, str(tokenizer))
        elif self.tokenizer == "sentencepiece":
            encode = partial(sentencepiece_bpe.encode, str(tokenizer / sentencepiece_bpe.MODEL))
        for split in SPLITS:
            lines = read_lines(self.output / "text" / tokens_file(split))
            write_lines(folder / split, in_order(encode, lines, self.workers))

    def _data_bin(self, folder: Path) -> None:
        kept = [f"--nwordssrc={self.size}"] if self.tokenizer == "words" and self.size else []
        binarize(self.output / "encoded", folder, self.workers, ["--only-source", *kept])


def prepare(preparation: Preparation) -> None:
    """Makes what is missing of a prepared folder.

    Raises:
        UserError: the folder has other settings; or a stage failed, from which the next run goes on.
    """
    finish = partial(_finish, preparation)
    prepare_folder("wikitext", preparation.output, preparation.settings, preparation.stages(), finish)


def _finish(preparation: Preparation) -> None:
    """Writes the manifest, and prints the sizes of the dictionary and of the splits."""
    output, corpus = preparation.output, preparation.corpus
    dictionary = dictionary_size(output / "data-bin" / "dict.txt")
    official = is_official(corpus, output / "text")
    tokens = {split: text_size(output / "encoded" / split).tokens for split in SPLITS}
    if official and preparation.tokenizer == "gpt2" and corpus.gpt2_dictionary not in (None, dictionary):
        print(
            f"wikitext: warning: found a dictionary of {dictionary:,}; the paper's has {corpus.gpt2_dictionary:,}",
            file=sys.stderr,
        )
    facts = {
        "corpus": preparation.key,
        "official": official,
        "tokenizer": preparation.tokenizer,
        "bpe": {"kind": preparation.tokenizer, **BPE[preparation.tokenizer]},
        "dictionary": dictionary,
        "tokens": tokens,
    }
    names = [*(f"text/{tokens_file(split)}" for split in SPLITS), *(f"encoded/{split}" for split in SPLITS)]
    names += [*BPE[preparation.tokenizer].values(), "data-bin/dict.txt"]
    write_manifest(output, preparation.settings(), facts, [output / name for name in names])
    listed = ", ".join(f"{split} {count:,}" for split, count in tokens.items())
    print(f"wikitext: {output}: {dictionary:,} entries in the dictionary; tokens with ends of lines: {listed}")


def plan(preparation: Preparation) -> Iterator[str]:
    """Lines that say which folders would be made, and how; writes nothing.

    Raises:
        UserError: the output was prepared with other settings.
    """
    corpus = preparation.corpus
    yield f"{corpus.name}, --tokenizer {preparation.tokenizer}, in {preparation.output}"
    if is_complete(preparation.output, preparation.settings()):
        yield "  is complete"
        return
    gpt2_files = " and ".join(gpt2_bpe.FILES)
    text = f"from {preparation.source}"
    if preparation.source is None:
        text = (
            f"from {corpus.zip_url} ({corpus.zip_bytes / MEGABYTE:.0f} MB), else from "
            f"{corpus.parquet_url('*.parquet')} ({corpus.shard_bytes / MEGABYTE:.0f} MB), kept in "
            f"{preparation.downloads}"
        )
    if preparation.tokenizer == "sentencepiece":
        tokenizer = f"{preparation.size:,} sub-words learned from the training part"
    elif preparation.bpe_dir is not None:
        tokenizer = f"{gpt2_files} from {preparation.bpe_dir}"
    else:
        mirrors = ", else from ".join(gpt2_bpe.MIRRORS)
        tokenizer = f"{gpt2_files} (1.5 MB) from {mirrors}, kept in {preparation.downloads}"
    how = {
        "text": text,
        "tokenizer": tokenizer,
        "encoded": f"by {preparation.workers} processes",
        "data-bin": "by fairseq-preprocess",
    }
    for name in preparation.stages():
        made = is_made(preparation.output / name, preparation.settings())
        yield f"  {name:<10} {'is made' if made else how[name]}"
    yield "  manifest.json, last"


def main() -> None:
    """The command line.

    Raises:
        UserError: an option does not go with the tokenizer; or what `prepare` raises.
    """
    arguments = _parser().parse_args()
    for option, tokenizers in {"vocabulary": ("sentencepiece", "words"), "bpe_dir": ("gpt2",)}.items():
        if getattr(arguments, option) is not None and arguments.tokenizer not in tokenizers:
            raise UserError(
                f"--{option.replace('_', '-')}: found it with --tokenizer {arguments.tokenizer}; expected --tokenizer "
                f"{' or '.join(tokenizers)}"
            )
    preparation = Preparation(
        key=arguments.corpus,
        source=arguments.source,
        tokenizer=arguments.tokenizer,
        vocabulary=arguments.vocabulary,
        bpe_dir=arguments.bpe_dir,
        output=arguments.output or Path("data") / f"{arguments.corpus}-{arguments.tokenizer}",
        downloads=arguments.downloads,
        workers=arguments.workers,
    )
    if arguments.dry_run:
        print(*plan(preparation), sep="\n")
    else:
        set_up()
        prepare(preparation)


def _parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(description="Prepares a WikiText corpus for fairseq-train.")
    corpora = whole.add_subparsers(dest="corpus", required=True)
    for key, corpus in CORPORA.items():
        described = DESCRIPTION.format(
            name=corpus.name, megabytes=corpus.zip_bytes / MEGABYTE, measured=corpus.measured
        )
        parser = corpora.add_parser(
            key,
            prog=f"bash scripts/{key}/prepare.sh",
            description=described.strip(),
            epilog=TOKENIZERS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument(
            "--tokenizer", choices=tuple(BPE), default=corpus.tokenizer, help="see below (default: %(default)s)"
        )
        parser.add_argument(
            "--vocabulary",
            type=positive,
            metavar="N",
            help=f"number of sub-words of --tokenizer sentencepiece (default: {VOCABULARY:,}, as Choi et al. 2020), or "
            "of words of --tokenizer words (default: all)",
        )
        parser.add_argument(
            "--bpe-dir",
            type=Path,
            metavar="DIR",
            help="folder of encoder.json and vocab.bpe, for --tokenizer gpt2 (default: they are downloaded)",
        )
        parser.add_argument(
            "--from",
            dest="source",
            type=Path,
            metavar="WHAT",
            help="the corpus, as you have it (see below); then it is not downloaded",
        )
        parser.add_argument(
            "--output", type=Path, metavar="DIR", help=f"the prepared folder (default: data/{key}-TOKENIZER)"
        )
        add_common_options(parser)
    return whole


if __name__ == "__main__":
    sys.exit(run("wikitext", main))
