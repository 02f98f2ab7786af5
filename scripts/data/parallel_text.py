"""A parallel corpus of plain text, prepared for fairseq: tokenised, cut into joint sub-words, cleaned and binarised.

The folder it makes, each of its folders whole or not at all:

    plain/          the text as people write it, a sentence per line
    tokenised/      Moses tokens
    tokenizer/      codes, codes.fastbpe: the joint sub-words, in the forms of both libraries
    text/           sub-words, the training split cleaned: what is binarised
    reference/      plain text of validation and test, for sacreBLEU: the sentences of data-bin, in their order
    data-bin/       what fairseq-train reads
    manifest.json   written last; plain, tokenised and text are not needed any more then
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from agg_fairseq.errors import UserError

from . import joint_bpe
from .binarise import SPLITS, binarise, dictionary_size
from .cleaning import is_clean
from .manifest import write_manifest
from .measuring import lines
from .moses import tokenise
from .ordered_workers import in_order
from .parallel_source import LANGUAGES, Source
from .preparing import prepare_folder
from .texts import ParallelText, Text, read_lines, write_lines, write_pairs

Pair = tuple[str, str]


@dataclass(frozen=True)
class Preparation:
    """What is to be made, of what, and where.

    Args:
        source: of the text.
        output: the prepared folder.
        merges: of the sub-words.
        workers: processes.
    """

    source: Source
    output: Path
    merges: int
    workers: int

    def settings(self) -> dict[str, object]:
        """All that the prepared folder depends on."""
        return {**self.source.settings, "merges": self.merges}

    def stages(self) -> dict[str, tuple[str, Callable[[Path], None]]]:
        """What each of the folders has in it, and how it is filled, in this order."""
        return {
            "plain": ("the text, a sentence per line", self._plain),
            "tokenised": ("punctuation normalised, Moses tokens", self._tokenised),
            "tokenizer": (f"{self.merges:,} merges, learnt on both languages", self._tokenizer),
            "text": ("sub-words, the training part cleaned", self._text),
            "reference": ("plain text of validation and test", self._reference),
            "data-bin": ("by fairseq-preprocess", self._data_bin),
        }

    def _plain(self, folder: Path) -> None:
        """Gathers the texts of every split."""
        for split, texts in self.source.splits().items():
            sources = _gather(folder / f"{split}.{LANGUAGES[0]}", [text.source for text in texts])
            targets = _gather(folder / f"{split}.{LANGUAGES[1]}", [text.target for text in texts])
            for text, found in zip(texts, zip(sources, targets, strict=True), strict=True):
                _check_counts(text, found)

    def _tokenised(self, folder: Path) -> None:
        """Makes tokens of the plain text."""
        for name in _names(SPLITS):
            work = partial(tokenise, name.rpartition(".")[2])
            write_lines(folder / name, in_order(work, read_lines(self.output / "plain" / name), self.workers))

    def _tokenizer(self, folder: Path) -> None:
        """Learns on both sides of the training part, before it is cleaned, as fairseq's script does."""
        counts = joint_bpe.count_words(self.output / "tokenised" / name for name in _names(["train"]))
        joint_bpe.learn(counts, self.merges, folder / "codes")
        joint_bpe.write_fastbpe(folder / "codes", folder / "codes.fastbpe")

    def _text(self, folder: Path) -> None:
        """Cuts words into sub-words, and leaves out the training pairs that are not clean."""
        for split in SPLITS:
            sides = (read_lines(self.output / "tokenised" / name) for name in _names([split]))
            work = partial(_encode, self._apply(), split == "train")
            pairs = in_order(work, zip(*sides, strict=True), self.workers)
            write_pairs([folder / name for name in _names([split])], pairs)

    def _reference(self, folder: Path) -> None:
        """Keeps validation and test as people write them."""
        for name in _names(SPLITS[1:]):
            shutil.copyfile(self.output / "plain" / name, folder / name)

    def _data_bin(self, folder: Path) -> None:
        """Writes what fairseq-train reads, with one dictionary for both languages."""
        source, target = LANGUAGES
        options = [f"--source-lang={source}", f"--target-lang={target}", "--joined-dictionary"]
        binarise(self.output / "text", folder, self.workers, options)

    def _apply(self) -> Callable[[list[str]], list[str]]:
        codes = self.output / "tokenizer" / "codes"
        if importlib.util.find_spec("fastBPE"):
            return partial(joint_bpe.apply_fastbpe, f"{codes}.fastbpe")
        return partial(joint_bpe.apply_subword_nmt, str(codes))


def prepare(preparation: Preparation) -> None:
    """Makes what is missing of a prepared folder.

    Raises:
        UserError: it is of other settings; or a stage failed, from which the next run goes on.
    """
    stages = {name: make for name, (_, make) in preparation.stages().items()}
    prepare_folder("wmt14", preparation.output, preparation.settings, stages, partial(_finish, preparation))


def _finish(preparation: Preparation) -> None:
    """Writes the manifest and says what there is."""
    output = preparation.output
    dictionary = dictionary_size(output / "data-bin" / f"dict.{LANGUAGES[0]}.txt")
    pairs = {split: _pairs(output, split) for split in SPLITS}
    facts = {
        "corpus": preparation.source.corpus,
        "official": preparation.source.is_official,
        "tokenizer": "moses",
        "bpe": {"kind": "subword_nmt", "bpe_codes": "tokenizer/codes"},
        "dictionary": dictionary,
        "pairs": pairs,
        "versions": {package: metadata.version(package) for package in ("sacremoses", "subword-nmt")},
    }
    files = [output / "tokenizer" / name for name in ("codes", "codes.fastbpe")]
    files += [output / "text" / name for name in _names(SPLITS)]
    files += [output / "reference" / name for name in _names(SPLITS[1:])]
    files += [output / "data-bin" / f"dict.{language}.txt" for language in LANGUAGES]
    write_manifest(output, preparation.settings(), facts, files)
    said = ", ".join(f"{split} {counts['kept']:,} of {counts['found']:,}" for split, counts in pairs.items())
    print(f"wmt14: {output}: {dictionary:,} entries in the dictionary; pairs: {said}")


def _pairs(output: Path, split: str) -> dict[str, int]:
    """Sentence pairs of a split, before and after cleaning."""
    name = _names([split])[0]
    return {"found": lines(output / "plain" / name), "kept": lines(output / "text" / name)}


def _names(splits: Iterable[str]) -> list[str]:
    return [f"{split}.{language}" for split in splits for language in LANGUAGES]


def _gather(path: Path, texts: Iterable[Text]) -> list[int]:
    """Writes texts one after another, and returns how many lines each has."""
    counts: list[int] = []

    def lines() -> Iterator[str]:
        for text in texts:
            counts.append(0)
            for line in text.lines():
                counts[-1] += 1
                yield line

    write_lines(path, lines())
    return counts


def _check_counts(text: ParallelText, found: tuple[int, int]) -> None:
    if found[0] != found[1]:
        raise UserError(
            f"{text.source}: found {found[0]:,} lines, and {found[1]:,} in {text.target}; expected as many, each the "
            "translation of the other"
        )
    if not found[0]:
        raise UserError(f"{text.source}: found no sentences, nor in {text.target}; expected one per line")
    if text.lines and found[0] != text.lines:
        print(f"wmt14: warning: {text.source}: found {found[0]:,} sentences; WMT14 has {text.lines:,}", file=sys.stderr)


def _encode(apply: Callable[[list[str]], list[str]], clean: bool, pairs: list[Pair]) -> list[Pair]:
    """Sentence pairs in sub-words; of those to be cleaned, the clean ones."""
    encoded = zip(*(apply(list(side)) for side in zip(*pairs, strict=True)), strict=True)
    return [pair for pair in encoded if not clean or is_clean(*pair)]
