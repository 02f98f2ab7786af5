"""A WikiText corpus, prepared for fairseq.

The folder it makes, each of its folders whole or not at all:

    text/           wiki.{train,valid,test}.tokens
    tokenizer/      the files of the sub-words
    encoded/        the text in sub-words, a line for a line: what is binarised
    data-bin/       what fairseq-train reads
    manifest.json   written last; text and encoded are not needed any more then
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from . import gpt2_bpe, sentencepiece_bpe, wikitext_source
from .binarise import SPLITS, binarise, dictionary_size
from .manifest import write_manifest
from .measuring import measure
from .ordered_workers import in_order
from .preparing import prepare_folder
from .texts import read_lines, write_lines
from .wikitext_check import check, is_official
from .wikitext_corpora import CORPORA, Corpus, tokens_file

BPE: Mapping[str, Mapping[str, str]] = {
    "words": {},
    "gpt2": {"gpt2_encoder_json": "tokenizer/encoder.json", "gpt2_vocab_bpe": "tokenizer/vocab.bpe"},
    "sentencepiece": {"sentencepiece_model": f"tokenizer/{sentencepiece_bpe.MODEL}"},
}
"""The tokenizers, and where the files of each are, by the options of `agg_fairseq.data.subwords.FILES`."""


@dataclass(frozen=True)
class Preparation:
    """What is to be made, of what, and where.

    Args:
        key: of `CORPORA`.
        source: what the user has of the corpus; None to download it.
        tokenizer: of `BPE`.
        vocabulary: sub-words that sentencepiece learns.
        bpe_dir: folder of GPT-2's files; None to download them.
        output: the prepared folder.
        downloads: where downloaded files are kept.
        workers: processes.
    """

    key: str
    source: Path | None
    tokenizer: str
    vocabulary: int
    bpe_dir: Path | None
    output: Path
    downloads: Path
    workers: int

    @property
    def corpus(self) -> Corpus:
        """Which one."""
        return CORPORA[self.key]

    def settings(self) -> dict[str, object]:
        """All that the prepared folder depends on."""
        learnt = {"vocabulary": self.vocabulary} if self.tokenizer == "sentencepiece" else {}
        return {"corpus": self.key, "from": self._given, "tokenizer": self.tokenizer, **learnt}

    @cached_property
    def _given(self) -> dict[str, str] | None:
        """The text that is given, by its content: read once."""
        return None if self.source is None else wikitext_source.digests(self.corpus, self.source)

    def stages(self) -> dict[str, Callable[[Path], None]]:
        """How each of the folders is filled, in this order."""
        needed = {} if self.tokenizer == "words" else {"tokenizer": self._tokenizer}
        return {"text": self._text, **needed, "encoded": self._encoded, "data-bin": self._data_bin}

    def _text(self, folder: Path) -> None:
        if self.source is None:
            wikitext_source.download(self.corpus, self.downloads, folder)
        else:
            wikitext_source.take(self.corpus, self.source, folder)
        check(self.corpus, folder, given=self.source is not None)

    def _tokenizer(self, folder: Path) -> None:
        if self.tokenizer == "sentencepiece":
            lines = read_lines(self.output / "text" / tokens_file("train"))
            sentencepiece_bpe.learn(lines, self.vocabulary, self.workers, folder)
        elif self.bpe_dir is None:
            gpt2_bpe.download(self.downloads, folder)
        else:
            gpt2_bpe.take(self.bpe_dir, folder)

    def _encoded(self, folder: Path) -> None:
        for split in SPLITS:
            lines = read_lines(self.output / "text" / tokens_file(split))
            write_lines(folder / split, in_order(self._encode(), lines, self.workers))

    def _encode(self) -> Callable[[list[str]], list[str]]:
        tokenizer = self.output / "tokenizer"
        if self.tokenizer == "gpt2":
            return partial(gpt2_bpe.encode, str(tokenizer))
        if self.tokenizer == "sentencepiece":
            return partial(sentencepiece_bpe.encode, str(tokenizer / sentencepiece_bpe.MODEL))
        return list

    def _data_bin(self, folder: Path) -> None:
        binarise(self.output / "encoded", folder, self.workers, ["--only-source"])


def prepare(preparation: Preparation) -> None:
    """Makes what is missing of a prepared folder.

    Raises:
        UserError: it is of other settings; or a stage failed, from which the next run goes on.
    """
    finish = partial(_finish, preparation)
    prepare_folder("wikitext", preparation.output, preparation.settings, preparation.stages(), finish)


def _finish(preparation: Preparation) -> None:
    """Writes the manifest and says what there is."""
    output = preparation.output
    dictionary = dictionary_size(output / "data-bin" / "dict.txt")
    official = is_official(preparation.corpus, output / "text")
    tokens = {split: measure(output / "encoded" / split).tokens for split in SPLITS}
    if official:
        _compare(preparation, dictionary)
    facts = {
        "corpus": preparation.key,
        "official": official,
        "tokenizer": preparation.tokenizer,
        "bpe": {"kind": preparation.tokenizer, **BPE[preparation.tokenizer]},
        "dictionary": dictionary,
        "tokens": tokens,
    }
    write_manifest(output, preparation.settings(), facts, _files(preparation))
    listed = ", ".join(f"{split} {count:,}" for split, count in tokens.items())
    print(f"wikitext: {output}: {dictionary:,} entries in the dictionary; tokens with ends of lines: {listed}")


def _compare(preparation: Preparation, dictionary: int) -> None:
    """Tells of a dictionary that is not the paper's."""
    published = preparation.corpus.gpt2_dictionary
    if preparation.tokenizer == "gpt2" and published not in (None, dictionary):
        print(
            f"wikitext: warning: found a dictionary of {dictionary:,}; the paper's has {published:,}", file=sys.stderr
        )


def _files(preparation: Preparation) -> list[Path]:
    """Those that the manifest describes."""
    names = [*(f"text/{tokens_file(split)}" for split in SPLITS), *(f"encoded/{split}" for split in SPLITS)]
    names += [*BPE[preparation.tokenizer].values(), "data-bin/dict.txt"]
    return [preparation.output / name for name in names]
