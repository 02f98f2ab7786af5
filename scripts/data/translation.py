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

The validation split of Yu et al. (2021) is newstest2012 and newstest2013 together. That of Yu et al. (2022) is every
100th training pair, which is left out of the training split: --validation train.

The 37,000 merges are those of the papers ("37K shared sub-words") and of the script of Yu et al. (2022). Together with
the single characters and fairseq's special tokens, they give a dictionary of 40,624 entries (Table 12). If it has
another size on WMT14, a warning is printed.

  bash scripts/wmt14_en_de/prepare.sh
  bash scripts/wmt14_en_de/prepare.sh --validation train --output data/wmt14_en_de-agg
  bash scripts/wmt14_en_de/prepare.sh --from multi30k --merges 6000 --output data/multi30k
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from agg_fairseq.errors import UserError
from agg_fairseq.files import write_json
from scripts.command import run, set_up

from . import joint_bpe, sentencepiece_bpe
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
from .text_files import Text, count_lines, read_lines, write_lines, write_pairs
from .translation_source import LANGUAGES, WMT14, Source, downloaded, given

MERGES = 37_000
DICTIONARY = 40_624
"""Entries of the dictionary of Yu et al. (2022), Table 12, whose validation split is taken from the training pairs."""
HELD_OUT = 100
"""With `--validation train`, the validation split is every 100th training pair, as in that paper's script."""
SHORTEST, LONGEST, RATIO = 1, 250, 1.5
"""Lengths of clean sentences in tokens, from fairseq's script for WMT (`clean-corpus-n.perl -ratio 1.5 … 1 250`)."""
SENTENCES = "sentences.json"
"""In the folder `plain`: the number of sentences of each text of each split, found and published (0: not known)."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Preparation:
    """What is prepared, and how.

    The folder that it makes, each of its folders whole or not at all:

        plain/          the text as people write it, a sentence per line
        tokenized/      Moses tokens; not with sentencepiece
        tokenizer/      the joint sub-words: codes, codes.fastbpe (for both libraries), or sentencepiece.model
        text/           sub-words, the training split cleaned: what is binarized
        reference/      plain text of validation and test, for sacreBLEU: the sentences of data-bin, in their order
        data-bin/       what fairseq-train reads
        manifest.json   written last; plain, tokenized and text are not needed any more then

    Args:
        source: where the text comes from.
        output: the prepared folder.
        merges: number of merges of the joint sub-words.
        workers: number of processes.
        sentencepiece: number of sub-words that sentencepiece learns instead, on plain text; None: Moses and merges.
        held_out: whether the validation split is every 100th training pair, instead of that of `source`.
    """

    source: Source
    output: Path
    merges: int
    workers: int
    sentencepiece: int | None = None
    held_out: bool = False

    def settings(self) -> dict[str, object]:
        """Everything that the prepared folder depends on."""
        how: dict[str, object] = {"merges": self.merges, "normalized": ["train", "valid"]}
        if self.sentencepiece is not None:
            how = {"sentencepiece": self.sentencepiece}
        if self.held_out:
            how["validation"] = f"every {HELD_OUT}th training pair"
        return {**self.source.settings, **how}

    def stages(self) -> dict[str, tuple[str, Callable[[Path], None]]]:
        """What each of the folders holds, and how it is filled, in this order."""
        moses = {"tokenized": ("punctuation normalized except in the test split, Moses tokens", self._tokenized)}
        sub_words, text = f"{self.merges:,} merges, learned on both languages", "sub-words, the training part cleaned"
        if self.sentencepiece is not None:
            moses, text = {}, "sub-words"
            sub_words = f"{self.sentencepiece:,} sub-words, learned on both languages"
        return {
            "plain": ("the text, a sentence per line", self._plain),
            **moses,
            "tokenizer": (sub_words, self._tokenizer),
            "text": (text, self._text),
            "reference": (f"plain text of {' and '.join(self.references())}", self._reference),
            "data-bin": ("by fairseq-preprocess", self._data_bin),
        }

    def _plain(self, folder: Path) -> None:
        """Joins the texts of every split, and checks that both sides have as many lines."""
        sentences: dict[str, list[dict[str, int]]] = {}
        for split, texts in self.source.splits().items():
            if split == "valid" and self.held_out:
                continue
            sources = _write_texts(folder / f"{split}.{LANGUAGES[0]}", [text.source for text in texts])
            targets = _write_texts(folder / f"{split}.{LANGUAGES[1]}", [text.target for text in texts])
            for text, source, target in zip(texts, sources, targets, strict=True):
                if source != target:
                    raise UserError(
                        f"{text.source}: found {source:,} lines, and {target:,} in {text.target}; expected as many, "
                        "each the translation of the other"
                    )
                if not source:
                    raise UserError(f"{text.source}: found no sentences, nor in {text.target}; expected one per line")
                if text.lines and source != text.lines:
                    print(
                        f"wmt14: warning: {text.source}: found {source:,} sentences; WMT14 has {text.lines:,}",
                        file=sys.stderr,
                    )
                sentences.setdefault(split, []).append({"found": source, "published": text.lines})
        write_json(folder / SENTENCES, sentences)
        if self.held_out:
            _hold_out(folder)

    def _tokenized(self, folder: Path) -> None:
        for name in _names(SPLITS):
            split, language = name.split(".")
            work = partial(tokenize, language, normalize=split != "test")
            write_lines(folder / name, in_order(work, read_lines(self.output / "plain" / name), self.workers))

    def _tokenizer(self, folder: Path) -> None:
        """Learns on both sides of the training part, before it is cleaned, as fairseq's script does."""
        if self.sentencepiece is not None:
            lines = itertools.chain(*(read_lines(self.output / "plain" / name) for name in _names(["train"])))
            sentencepiece_bpe.learn(lines, self.sentencepiece, self.workers, folder, normalization="nmt_nfkc")
            return
        counts = joint_bpe.count_words(self.output / "tokenized" / name for name in _names(["train"]))
        joint_bpe.learn(counts, self.merges, folder / "codes")
        joint_bpe.write_fastbpe(folder / "codes", folder / "codes.fastbpe")

    def _text(self, folder: Path) -> None:
        """Cuts words into sub-words, and leaves out the pairs that are not clean of what the corpus has to train on."""
        cleaned = ("train", "valid") if self.held_out else ("train",)
        codes, before = self.output / "tokenizer" / "codes", self.output / "tokenized"
        if self.sentencepiece is not None:
            model = self.output / "tokenizer" / sentencepiece_bpe.MODEL
            apply, before = partial(sentencepiece_bpe.encode, str(model)), self.output / "plain"
        elif importlib.util.find_spec("fastBPE"):
            apply = partial(joint_bpe.apply_fastbpe, f"{codes}.fastbpe")
        else:
            apply = partial(joint_bpe.apply_subword_nmt, str(codes))
        for split in SPLITS:
            sides = (read_lines(before / name) for name in _names([split]))
            work = partial(_encode, apply, split in cleaned and self.sentencepiece is None)
            pairs = in_order(work, zip(*sides, strict=True), self.workers)
            write_pairs([folder / name for name in _names([split])], pairs)

    def references(self) -> list[str]:
        """The splits with plain text for sacreBLEU; not a validation split whose pairs are cleaned."""
        return ["test"] if self.held_out else ["valid", "test"]

    def _reference(self, folder: Path) -> None:
        for name in _names(self.references()):
            shutil.copyfile(self.output / "plain" / name, folder / name)

    def _data_bin(self, folder: Path) -> None:
        source, target = LANGUAGES
        options = [f"--source-lang={source}", f"--target-lang={target}", "--joined-dictionary"]
        binarize(self.output / "text", folder, self.workers, options)


def prepare(preparation: Preparation) -> None:
    """Makes what is missing of a prepared folder.

    Raises:
        UserError: the folder has other settings; or a stage failed, from which the next run goes on.
    """
    stages = {name: make for name, (_, make) in preparation.stages().items()}
    prepare_folder("wmt14", preparation.output, preparation.settings, stages, partial(_finish, preparation))


def _finish(preparation: Preparation) -> None:
    """Writes the manifest, and prints the numbers of dictionary entries and of pairs."""
    output = preparation.output
    dictionary = dictionary_size(output / "data-bin" / f"dict.{LANGUAGES[0]}.txt")
    pairs = {
        split: {"found": count_lines(output / "plain" / name), "kept": count_lines(output / "text" / name)}
        for split in SPLITS
        for name in _names([split])[:1]
    }
    tokenizer, sub_words = "moses", ["codes", "codes.fastbpe"]
    bpe, packages = {"kind": "subword_nmt", "bpe_codes": "tokenizer/codes"}, ("sacremoses", "subword-nmt")
    if preparation.sentencepiece is not None:
        tokenizer, sub_words = "sentencepiece", [sentencepiece_bpe.MODEL]
        bpe = {"kind": "sentencepiece", "sentencepiece_model": f"tokenizer/{sentencepiece_bpe.MODEL}"}
        packages = ("sentencepiece",)
    facts = {
        "corpus": preparation.source.corpus,
        "official": preparation.source.is_official and _has_published_sentences(output / "plain" / SENTENCES),
        "tokenizer": tokenizer,
        "bpe": bpe,
        "dictionary": dictionary,
        "pairs": pairs,
        "validation": "train" if preparation.held_out else "given",
        "versions": {package: metadata.version(package) for package in packages},
    }
    files = [output / "tokenizer" / name for name in sub_words]
    files += [output / "text" / name for name in _names(SPLITS)]
    files += [output / "reference" / name for name in _names(preparation.references())]
    files += [output / "data-bin" / f"dict.{language}.txt" for language in LANGUAGES]
    write_manifest(output, preparation.settings(), facts, files)
    said = ", ".join(f"{split} {counts['kept']:,} of {counts['found']:,}" for split, counts in pairs.items())
    print(f"wmt14: {output}: {dictionary:,} entries in the dictionary; pairs: {said}")
    is_of_paper = preparation.source.is_official and preparation.held_out and preparation.merges == MERGES
    if is_of_paper and preparation.sentencepiece is None and dictionary != DICTIONARY:
        print(
            f"wmt14: warning: found {dictionary:,} entries in the dictionary; Yu et al. (2022) have {DICTIONARY:,}, so "
            "that something of their preparation differs",
            file=sys.stderr,
        )


def _has_published_sentences(path: Path) -> bool:
    """Whether each text of WMT14 had the number of sentences that it is known to have."""
    if not path.exists():  # the folder `plain` was made by version 0.1.0
        return False
    texts = itertools.chain(*json.loads(path.read_text(encoding="utf-8")).values())
    return all(text["found"] == text["published"] for text in texts)


def _names(splits: Iterable[str]) -> list[str]:
    return [f"{split}.{language}" for split in splits for language in LANGUAGES]


def _write_texts(path: Path, texts: Iterable[Text]) -> list[int]:
    """Writes texts one after another into a file, and returns the number of lines of each."""
    counts: list[int] = []

    def lines() -> Iterator[str]:
        for text in texts:
            counts.append(0)
            for line in text.lines():
                counts[-1] += 1
                yield line

    write_lines(path, lines())
    return counts


def _hold_out(folder: Path) -> None:
    """Moves every 100th pair of `folder`/train to valid.

    Raises:
        UserError: there are fewer than 100 pairs.
    """
    for language in LANGUAGES:
        whole = (folder / f"train.{language}").replace(folder / f"whole.{language}")
        pairs = count_lines(whole)
        if pairs < HELD_OUT:
            raise UserError(
                f"--validation train: found {pairs} training pairs; expected at least {HELD_OUT}, since every "
                f"{HELD_OUT}th is for validation"
            )
        for split in ("train", "valid"):
            numbered = enumerate(read_lines(whole), 1)
            held = (line for number, line in numbered if (number % HELD_OUT == 0) == (split == "valid"))
            write_lines(folder / f"{split}.{language}", held)
        whole.unlink()


def tokenize(language: str, lines: list[str], normalize: bool = True) -> list[str]:
    """Normalizes punctuation and tokenizes as Moses does, by sacremoses.

    Without `normalize`, punctuation stays as it is, except that ’ becomes ': the test split of fairseq's script for WMT
    and of that of Yu et al. (2022). A normalized reference would be easier to match.

    Control and format characters become spaces, hyphens between letters or digits become tokens (`@-@`, as by
    `tokenizer.perl -a`), and characters with a meaning to Moses are escaped (`&quot;`), as in fairseq's script for WMT.
    `agg-fairseq bleu --moses de` undoes the last two.

    Args:
        language: whose abbreviations and apostrophes are kept: `en`, `de`.
        lines: as people write them.
        normalize: whether to normalize punctuation.

    Returns:
        Lines of tokens that are separated by single spaces.
    """
    control, normalizer, tokenizer = _moses(language)
    texts = [normalizer.normalize(line) if normalize else line.replace("’", "'") for line in lines]
    return [
        tokenizer.tokenize(control.sub(" ", text), aggressive_dash_splits=True, escape=True, return_str=True)
        for text in texts
    ]


@cache
def _moses(language: str) -> tuple[Any, Any, Any]:
    """What Moses' remove-non-printing-char.perl removes, its normalizer and its tokenizer."""
    import regex
    import sacremoses

    return regex.compile(r"\p{C}"), sacremoses.MosesPunctNormalizer(language), sacremoses.MosesTokenizer(language)


def _encode(apply: Callable[[list[str]], list[str]], clean: bool, pairs: list[Pair]) -> list[Pair]:
    """Sentence pairs in sub-words; only the clean ones, if `clean`."""
    encoded = zip(*(apply(list(side)) for side in zip(*pairs, strict=True)), strict=True)
    return [pair for pair in encoded if not clean or is_clean(*pair)]


def is_clean(source: str, target: str) -> bool:
    """Whether both sentences have 1 to 250 tokens, and neither more than 1.5 times those of the other.

    This is how Moses' clean-corpus-n.perl chooses the pairs that a translation model is trained on.
    """
    shorter, longer = sorted((len(source.split()), len(target.split())))
    return shorter >= SHORTEST and longer <= LONGEST and longer <= RATIO * shorter


def main() -> None:
    """The command line.

    Raises:
        UserError: an option does not go with the tokenizer; or what `prepare` raises.
    """
    arguments = _parser().parse_args()
    for option, tokenizer in {"merges": "moses", "vocabulary": "sentencepiece"}.items():
        if getattr(arguments, option) is not None and arguments.tokenizer != tokenizer:
            raise UserError(
                f"--{option}: found it with --tokenizer {arguments.tokenizer}; expected --tokenizer {tokenizer}"
            )
    if arguments.tokenizer == "sentencepiece" and arguments.vocabulary is None:
        raise UserError("--tokenizer sentencepiece: found no --vocabulary; expected the number of sub-words")
    source = downloaded(arguments.downloads) if arguments.source is None else given(arguments.source)
    output = arguments.output or Path("data") / (f"{WMT14}-agg" if arguments.validation == "train" else WMT14)
    preparation = Preparation(
        source,
        output,
        arguments.merges or MERGES,
        arguments.workers,
        sentencepiece=arguments.vocabulary,
        held_out=arguments.validation == "train",
    )
    if not arguments.dry_run:
        set_up()
        prepare(preparation)
        return
    print(f"{source.corpus} in {output}:")
    if is_complete(output, preparation.settings()):
        print("  is complete")
        return
    for line in source.plan:
        print(f"  {line}")
    for name, (what, _) in preparation.stages().items():
        print(f"  {name:<10} {'is made' if is_made(output / name, preparation.settings()) else what}")
    print("  manifest.json, last")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bash scripts/wmt14_en_de/prepare.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="download nothing: DIR has {train,valid,test}.{en,de}, a sentence per line, or else WMT's archives; "
        "samples of these are accepted with a warning",
    )
    parser.add_argument(
        "--tokenizer", choices=("moses", "sentencepiece"), default="moses", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--merges", type=positive, metavar="N", help=f"merges of the sub-words of Moses tokens (default: {MERGES})"
    )
    parser.add_argument(
        "--vocabulary", type=positive, metavar="N", help="number of sub-words of --tokenizer sentencepiece"
    )
    parser.add_argument(
        "--validation",
        choices=("given", "train"),
        default="given",
        help="given: the validation split of the corpus (default); train: every 100th training pair, which is left out "
        "of the training split, as in Yu et al. (2022)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help=f"prepared folder (default: data/{WMT14}, with --validation train data/{WMT14}-agg)",
    )
    add_common_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run("wmt14", main))
