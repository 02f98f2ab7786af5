"""Prepares WMT14 English-German for training with fairseq, or any parallel corpus of these two languages.

Without --from, it downloads the archives of the shared task (1.7 GB): Europarl v7, Common Crawl and News Commentary v9
for training, newstest2012 and newstest2013 for validation, and newstest2014 (all 3,003 sentences) for testing. It
normalizes punctuation (except in the test split), tokenizes as Moses does, and splits words into sub-words that it
learns on both languages. It removes training pairs in which a side is longer than 250 sub-words, or more than 1.5 times
as long as the other side. Then it runs fairseq-preprocess with one dictionary for both languages, so that the data can
also be used with --source-lang de --target-lang en. At the end, it prints the numbers of pairs and dictionary entries.
To continue after an interruption, run the same command again. With --tokenizer sentencepiece, sentencepiece learns the
sub-words on the plain text, and all pairs are kept.

DIR/manifest.json is written last. DIR then contains data-bin for fairseq-train, reference with the plain text for
`agg-fairseq bleu LOG --reference DIR/reference/test.de --moses de`, and tokenizer with the codes of the sub-words. You
may remove the folders plain, tokenized and text.

  bash scripts/wmt14_en_de/prepare.sh
  bash scripts/wmt14_en_de/prepare.sh --validation train --output data/wmt14_en_de-agg
  bash scripts/wmt14_en_de/prepare.sh --from multi30k --vocabulary 6000 --output data/multi30k
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from agg_fairseq.errors import UserError

from ..command import Parser, run
from . import joint_bpe, moses, sentencepiece_bpe
from .files import count_lines, in_batches, read_lines, write_lines
from .prepared_folder import SPLITS, add_common_options, binarize, dictionary_size, prepare_folder
from .translation_source import LANGUAGES, WMT14, ParallelText, Source, downloaded, given

VOCABULARY = 37_000  # merges of the papers ("37K shared sub-words"), and of the script of Yu et al. (2022)
DICTIONARY = 40_624
"""Entries of the dictionary of Yu et al. (2022), Table 12, whose validation split is taken from the training pairs."""
HELD_OUT = 100
"""With `--validation train`, the validation split is every 100th training pair, as in that paper's script."""

Pair = tuple[str, str]


def prepare(
    source: Source, output: Path, *, vocabulary: int, sentencepiece: bool, held_out: bool, workers: int
) -> None:
    """Makes what is missing of a prepared folder.

    Args:
        vocabulary: number of merges of Moses' tokens, or with `sentencepiece`, which cuts plain text, of sub-words.
        held_out: whether the validation split is every 100th training pair, instead of that of `source`.
    """
    cleaned = () if sentencepiece else ("train", "valid") if held_out else ("train",)
    references = ["test"] if held_out else ["valid", "test"]  # pairs that are cleaned have none

    def plain(folder: Path) -> None:
        texts = source.texts()
        for split in SPLITS:
            held = None if not held_out or split == "test" else split == "valid"
            _write_pairs(folder, split, _pairs(texts["train" if held else split], held))

    def tokenized(folder: Path) -> None:
        for name in _names(SPLITS):
            split, language = name.split(".")
            work = partial(moses.tokenize, language, normalize=split != "test")
            write_lines(folder / name, in_batches(work, read_lines(output / "plain" / name), workers))

    words = output / ("plain" if sentencepiece else "tokenized")  # what is cut into sub-words

    def tokenizer(folder: Path) -> None:
        """Learns on both sides of the training part, before it is cleaned, as fairseq's script does."""
        files = [words / name for name in _names(["train"])]
        if sentencepiece:
            lines = itertools.chain(*map(read_lines, files))
            sentencepiece_bpe.learn(lines, vocabulary, workers, folder, normalization_rule_name="nmt_nfkc")
        else:
            joint_bpe.learn(files, vocabulary, folder / "codes")

    def encoded(lines: Iterator[str]) -> Iterator[str]:
        if sentencepiece:
            return sentencepiece_bpe.encode(output / "tokenizer", lines)
        return in_batches(partial(joint_bpe.encode, output / "tokenizer" / "codes"), lines, workers)

    def text(folder: Path) -> None:
        """Cuts words into sub-words, and leaves out the pairs that are not clean of what the corpus has to train on."""
        for split in SPLITS:
            pairs = zip(*(encoded(read_lines(words / name)) for name in _names([split])), strict=True)
            _write_pairs(folder, split, (pair for pair in pairs if split not in cleaned or moses.is_clean(*pair)))

    def reference(folder: Path) -> None:
        for name in _names(references):
            shutil.copyfile(output / "plain" / name, folder / name)

    def data_bin(folder: Path) -> None:
        options = [f"--source-lang={LANGUAGES[0]}", f"--target-lang={LANGUAGES[1]}", "--joined-dictionary"]
        binarize(output / "text", folder, workers, options)

    def finish() -> tuple[dict[str, object], list[str]]:
        dictionary = dictionary_size(output / "data-bin" / f"dict.{LANGUAGES[0]}.txt")
        counted = {"found": "plain", "kept": "text"}
        pairs = {
            split: {name: count_lines(output / folder / f"{split}.en") for name, folder in counted.items()}
            for split in SPLITS
        }
        listed = ", ".join(f"{split} {counts['kept']:,} of {counts['found']:,}" for split, counts in pairs.items())
        print(f"wmt14: {output}: {dictionary:,} entries in the dictionary; pairs: {listed}")
        is_of_paper = source.is_official and held_out and vocabulary == VOCABULARY and not sentencepiece
        if is_of_paper and dictionary != DICTIONARY:
            print(
                f"wmt14: warning: found {dictionary:,} entries; Yu et al. (2022) have {DICTIONARY:,}", file=sys.stderr
            )
        model, bpe = "tokenizer/codes", {"kind": "subword_nmt", "bpe_codes": "tokenizer/codes"}
        if sentencepiece:
            model = f"tokenizer/{sentencepiece_bpe.MODEL}"
            bpe = {"kind": "sentencepiece", "sentencepiece_model": model}
        facts = {
            "corpus": source.corpus,
            "official": source.is_official,
            "tokenizer": "sentencepiece" if sentencepiece else "moses",
            "bpe": bpe,
            "dictionary": dictionary,
            "pairs": pairs,
            "validation": "train" if held_out else "given",
        }
        files = [model, *(f"text/{name}" for name in _names(SPLITS))]
        files += [f"reference/{name}" for name in _names(references)]
        return facts, [*files, *(f"data-bin/dict.{language}.txt" for language in LANGUAGES)]

    stages = {"plain": plain, "tokenized": tokenized, "tokenizer": tokenizer, "text": text}
    stages |= {"reference": reference, "data-bin": data_bin}
    if sentencepiece:
        del stages["tokenized"]
    how = {"sentencepiece": vocabulary} if sentencepiece else {"merges": vocabulary, "normalized": ["train", "valid"]}
    if held_out:
        how["validation"] = f"every {HELD_OUT}th training pair"
    prepare_folder("wmt14", output, {**source.settings, **how}, stages, finish)


def _names(splits: Iterable[str]) -> list[str]:
    return [f"{split}.{language}" for split in splits for language in LANGUAGES]


def _pairs(texts: Iterable[ParallelText], held: bool | None) -> Iterator[Pair]:
    """The sentence pairs of texts; `held`: only every 100th of them, or only the others."""
    number = 0
    for source, target in texts:
        before = number
        for pair in itertools.zip_longest(source.lines(), target.lines()):
            if None in pair:
                raise UserError(f"{target.path}: found another number of lines than in {source.path}; expected as many")
            number += 1
            if held is None or held == (number % HELD_OUT == 0):
                yield pair
        if number == before:
            raise UserError(f"{source.path}: found no sentences; expected one per line")
    if held and number < HELD_OUT:
        raise UserError(f"--validation train: found {number} training pairs; expected at least {HELD_OUT}")


def _write_pairs(folder: Path, split: str, pairs: Iterable[Pair]) -> None:
    with open(folder / f"{split}.{LANGUAGES[1]}", "w", encoding="utf-8", newline="\n") as targets:

        def sources() -> Iterator[str]:
            for source, target in pairs:
                targets.write(f"{target}\n")
                yield source

        write_lines(folder / f"{split}.{LANGUAGES[0]}", sources())


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Parser("wmt14_en_de/prepare.sh", __doc__)
    parser.add_argument("--tokenizer", choices=("moses", "sentencepiece"), default="moses", help="default: moses")
    parser.add_argument(
        "--validation", choices=("given", "train"), default="given",
        help="given: the validation split of the corpus (default); train: every 100th training pair, which is left out "
        "of the training split, as in Yu et al. (2022)",
    )  # fmt: skip
    add_common_options(
        parser,
        source="download nothing: a folder of {train,valid,test}.{en,de}, a sentence per line, or else WMT's archives; "
        "samples of these are accepted with a warning",
        vocabulary=f"number of merges, or of sub-words of --tokenizer sentencepiece (default: {VOCABULARY:,})",
        output=f"data/{WMT14}, with --validation train data/{WMT14}-agg",
    )
    options = parser.parse_args(arguments)
    held_out = options.validation == "train"
    prepare(
        downloaded(options.downloads) if options.source is None else given(options.source),
        options.output or Path("data") / (f"{WMT14}-agg" if held_out else WMT14),
        vocabulary=options.vocabulary or VOCABULARY,
        sentencepiece=options.tokenizer == "sentencepiece",
        held_out=held_out,
        workers=options.workers,
    )


if __name__ == "__main__":
    sys.exit(run("wmt14", main))
