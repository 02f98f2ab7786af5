"""Cuts the lines of files into tokens, with spaces between: the files NAME of a folder into those
of another.

    python -m scripts.data.encode WORKERS KIND TOKENIZER FROM TO NAME…

TOKENIZER is the folder of the tokenizer's files. For the two kinds of moses, it does not matter,
and each NAME ends in its language, .en or .de.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from itertools import chain, islice
from pathlib import Path

from ..command import run

Cut = Callable[[list[str]], Iterable[str]]  # of lines into their tokens, with spaces between
BLOCK_LINES = 1000  # that are cut at a time
# by the threads of a library, or faster than lines reach other processes
THREADED = ("words", "gpt2")


def words(_: str) -> Cut:
    """Words, with plain spaces between: fairseq would begin a new line at a carriage return."""
    return lambda lines: map(" ".join, map(str.split, lines))


def sentencepiece(folder: str) -> Cut:
    """The sub-words of sentencepiece."""
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceProcessor(model_file=f"{folder}/sentencepiece.model")
    plain = words("")
    return lambda lines: map(" ".join, pieces.encode([*plain(lines)], out_type=str))


def gpt2(folder: str) -> Cut:
    """GPT-2's byte-level sub-words by their numbers (15496), without the spaces around a line.

    So do fairseq's examples/roberta/multiprocessing_bpe_encoder.py and, but for their names
    (`Ġgame`), gpt2_tokenize.py of Yu et al. (2022).
    """
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = models.BPE.from_file(f"{folder}/encoder.json", f"{folder}/vocab.bpe")
    pieces = Tokenizer(model)
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)

    def cut(lines: list[str]) -> Iterator[str]:
        for encoding in pieces.encode_batch_fast([line.strip() for line in lines]):
            yield " ".join(map(str, encoding.ids))

    return cut


def bpe(folder: str) -> Cut:
    """Pieces of words, `@@` after each that does not end a word, by fastBPE or, where that is not
    installed, by subword-nmt; both give the same.
    """
    try:
        import fastBPE

        apply = fastBPE.fastBPE(f"{folder}/codes").apply
        pieces = lru_cache(1 << 20)(lambda word: apply([word])[0])
    except ImportError:
        from subword_nmt.apply_bpe import BPE

        pieces = lru_cache(1 << 20)(BPE(Path(folder, "codes").open(encoding="utf-8")).segment)
    return lambda lines: (" ".join(map(pieces, line.split())) for line in lines)


def moses(language: str, *, normalize: bool = True) -> Cut:
    """Tokens as of Moses' Perl scripts for a language, `en` or `de`, by sacremoses.

    As fairseq's script for WMT calls them: punctuation is normalized, control and format characters
    become spaces, hyphens between letters or digits become tokens (`@-@`), and characters with a
    meaning to Moses are escaped (`&quot;`). `agg-fairseq bleu --moses de` undoes the last two.
    Without `normalize`, only ’ becomes ': of the test split, as in that script and in that of Yu et
    al. (2022). A normalized reference would be easier to match.
    """
    import regex
    import sacremoses

    normalizer = sacremoses.MosesPunctNormalizer(language, perl_parity=True)
    tokenizer = sacremoses.MosesTokenizer(language)
    control = regex.compile(r"\p{C}")  # what remove-non-printing-char.perl removes
    # A full stop at the end is a token of its own, also after what may be an abbreviation:
    # sacremoses lacks that rule.
    final_stop = re.compile(r"(?<=[^\s.])\.\s*$")

    def cut_line(line: str) -> str:
        # Perl's lines have their line feeds, which one of its rules needs (`gut.“` at the end
        # becomes `gut".`).
        text = normalizer.normalize(f"{line}\n") if normalize else line.replace("’", "'")
        text = final_stop.sub(" .", control.sub(" ", text))
        return tokenizer.tokenize(text, aggressive_dash_splits=True, escape=True, return_str=True)

    return lambda lines: map(cut_line, lines)


# once in each process
KINDS = {load.__name__: cache(load) for load in (words, sentencepiece, gpt2, bpe, moses)}
KINDS["moses-as-it-is"] = cache(partial(moses, normalize=False))


def cut(kind: str, argument: str, lines: list[str]) -> list[str]:
    """Cuts lines by the files of a folder, or for a language."""
    return [*KINDS[kind](argument)(lines)]


def encode(kind: str, argument: str, lines: Iterable[str], workers: int = 1) -> Iterator[str]:
    """The encoded lines in order, by several processes or threads."""
    import joblib

    rest = iter(lines)
    blocks = iter(lambda: [*islice(rest, BLOCK_LINES)], [])
    calls = (joblib.delayed(cut)(kind, argument, block) for block in blocks)
    processes = 1 if kind in THREADED else workers
    return chain.from_iterable(joblib.Parallel(processes, return_as="generator")(calls))


def main() -> None:
    """The command line."""
    workers, kind, folder, source, target, *names = sys.argv[1:]
    os.environ.setdefault("RAYON_NUM_THREADS", workers)  # of tokenizers
    for name in names:
        argument = name.rpartition(".")[2] if kind.startswith("moses") else folder
        with (
            open(Path(source, name), encoding="utf-8", newline="\n") as read,
            open(Path(target, name), "w", encoding="utf-8", newline="\n") as file,
        ):
            lines = (line.removesuffix("\n") for line in read)
            file.writelines(f"{line}\n" for line in encode(kind, argument, lines, int(workers)))


if __name__ == "__main__":
    # whose functions other processes can import, unlike those of __main__
    from scripts.data import encode as module

    sys.exit(run("encode", module.main))
