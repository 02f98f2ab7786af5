"""Cuts the lines of files into tokens, with spaces between: the files NAME of a folder into those of another.

    python -m scripts.data.encode WORKERS KIND TOKENIZER FROM TO NAME…

TOKENIZER is the folder of the tokenizer's files. For the two kinds of moses, it does not matter, and each NAME ends in
its language, .en or .de.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from ..command import run

BATCH = 1000  # lines that a process is handed at a time
FINAL_STOP = re.compile(r"(?<=[^\s.])\.\s*$")


def words(_: str, lines: list[str]) -> list[str]:
    """The words of lines, with plain spaces between: fairseq would begin a new line at a carriage return."""
    return [" ".join(line.split()) for line in lines]


def sentencepiece(folder: str, lines: list[str]) -> list[str]:
    """The sub-words of sentencepiece."""
    encoded = _loaded("sentencepiece", folder).encode(words(folder, lines), out_type=str, num_threads=1)
    return [" ".join(pieces) for pieces in encoded]


def gpt2(folder: str, lines: list[str]) -> list[str]:
    """GPT-2's byte-level sub-words by their numbers (15496), each line on its own and without the spaces around it.

    So does fairseq's examples/roberta/multiprocessing_bpe_encoder.py, and so did Yu et al. (2022), whose
    gpt2_tokenize.py strips each line within pytorch_transformers and keeps the empty ones. It writes sub-words as
    strings (`Ġgame`), which makes no difference to a dictionary but their names.
    """
    encodings = _loaded("gpt2", folder).encode_batch([line.strip() for line in lines])
    return [" ".join(map(str, encoding.ids)) for encoding in encodings]


def bpe(folder: str, lines: list[str]) -> list[str]:
    """Cuts the words of lines of tokens into pieces, `@@` after each that does not end a word.

    They are cut by fastBPE, or by subword-nmt where fastBPE is not installed; both give the same pieces.
    """
    return [" ".join(_pieces(folder, word) for word in line.split()) for line in lines]


@lru_cache(maxsize=1 << 20)
def _pieces(folder: str, word: str) -> str:
    return _loaded("bpe", folder)(word)


def moses(language: str, lines: list[str], *, normalize: bool = True) -> list[str]:
    """Normalizes punctuation and tokenizes as Moses' Perl scripts do for a language, `en` or `de`, by sacremoses.

    As fairseq's script for WMT calls them: control and format characters become spaces, hyphens between letters or
    digits become tokens (`@-@`), and characters with a meaning to Moses are escaped (`&quot;`). `agg-fairseq bleu
    --moses de` undoes the last two. Without `normalize`, punctuation stays as it is, except that ’ becomes ': the test
    split in that script and in that of Yu et al. (2022). A normalized reference would be easier to match.
    """
    control, normalizer, tokenizer = _loaded("moses", language)
    # Perl's lines have their line feeds, which one of its rules needs (`gut.“` at the end becomes `gut".`).
    texts = [normalizer.normalize(f"{line}\n") if normalize else line.replace("’", "'") for line in lines]
    # A full stop at the end is a token of its own, also after what may be an abbreviation: sacremoses lacks that rule.
    texts = [FINAL_STOP.sub(" .", control.sub(" ", text)) for text in texts]
    return [tokenizer.tokenize(text, aggressive_dash_splits=True, escape=True, return_str=True) for text in texts]


@cache
def _loaded(kind: str, argument: str) -> Any:
    """What cuts lines, loaded once in each process: of a folder, or of a language."""
    if kind == "sentencepiece":
        from sentencepiece import SentencePieceProcessor

        return SentencePieceProcessor(model_file=f"{argument}/sentencepiece.model")
    if kind == "gpt2":
        from tokenizers import ByteLevelBPETokenizer

        return ByteLevelBPETokenizer.from_file(f"{argument}/encoder.json", f"{argument}/vocab.bpe")
    if kind == "moses":
        import regex
        import sacremoses

        normalizer = sacremoses.MosesPunctNormalizer(argument, perl_parity=True)
        # \p{C} is what remove-non-printing-char.perl removes
        return regex.compile(r"\p{C}"), normalizer, sacremoses.MosesTokenizer(argument)
    try:
        import fastBPE

        apply = fastBPE.fastBPE(f"{argument}/codes").apply
        return lambda word: apply([word])[0]
    except ImportError:
        from subword_nmt.apply_bpe import BPE

        return BPE(Path(argument, "codes").open(encoding="utf-8")).segment


KINDS = {
    "words": words,
    "sentencepiece": sentencepiece,
    "gpt2": gpt2,
    "bpe": bpe,
    "moses": moses,
    "moses-as-it-is": partial(moses, normalize=False),
}


def encode(kind: str, argument: str, lines: Iterable[str], workers: int = 1) -> Iterator[str]:
    """The encoded lines in order, by several processes; lines are read as they are needed."""
    stream = iter(lines)
    batches = iter(lambda: list(itertools.islice(stream, BATCH)), [])
    work = partial(KINDS[kind], argument)
    if workers == 1:
        return itertools.chain.from_iterable(map(work, batches))
    import joblib

    results = joblib.Parallel(workers, return_as="generator")(joblib.delayed(work)(batch) for batch in batches)
    return itertools.chain.from_iterable(results)


def main() -> None:
    """The command line."""
    workers, kind, tokenizer, source, target, *names = sys.argv[1:]
    for name in names:
        argument = name.rpartition(".")[2] if kind.startswith("moses") else tokenizer
        with (
            open(Path(source, name), encoding="utf-8", newline="\n") as read,
            open(Path(target, name), "w", encoding="utf-8", newline="\n") as file,
        ):
            lines = (line.removesuffix("\n") for line in read)
            file.writelines(f"{line}\n" for line in encode(kind, argument, lines, int(workers)))


if __name__ == "__main__":
    from scripts.data import encode as module  # whose functions other processes can import, unlike those of __main__

    sys.exit(run("encode", module.main))
