"""Sub-words that sentencepiece learns from a text by merging pairs (BPE)."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from agg_fairseq.errors import UserError

from .files import in_batches

MODEL = "sentencepiece.model"
UNKNOWN = "<unknown>"  # the piece of characters that do not occur in the training part
LONGEST = 1 << 20
"""Bytes of the longest line that is learned from; sentencepiece's own limit, 4,192, would leave out long paragraphs."""


def learn(lines: Iterable[str], vocabulary: int, workers: int, folder: Path, **options: str | float) -> None:
    """Learns sub-words and writes them as `MODEL` into a folder.

    Unless the options of sentencepiece's trainer say otherwise, all characters of the text are in the vocabulary, and
    none is replaced by another. WikiText's `<unk>` is learned like any other word: if sentencepiece's own unknown piece
    had this name, it would skip the word, and then know no `<` and `>`.
    """
    import sentencepiece

    model = io.BytesIO()
    ours = {"character_coverage": 1.0, "normalization_rule_name": "identity", "max_sentence_length": LONGEST}
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=map(_spaced, lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocabulary,
            unk_piece=UNKNOWN,
            num_threads=workers,
            minloglevel=2,
            **{**ours, **options},
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].rpartition("] ")[2]  # without the place in its source
        raise UserError(f"--vocabulary: found {vocabulary:,}; expected a size that fits the text ({reason})") from error
    (folder / MODEL).write_bytes(model.getvalue())


def encode(folder: Path, lines: Iterable[str]) -> Iterator[str]:
    """The sub-words of lines, by the model that `learn` wrote into a folder."""
    import sentencepiece

    # Read here, since sentencepiece itself takes no path that is not UTF-8.
    processor = sentencepiece.SentencePieceProcessor(model_proto=(folder / MODEL).read_bytes())

    def encoded(batch: list[str]) -> list[str]:  # on all cores
        return [" ".join(pieces) for pieces in processor.encode([_spaced(line) for line in batch], out_type=str)]

    return in_batches(encoded, lines)


def _spaced(line: str) -> str:
    """A line with a plain space between words: fairseq would split a sub-word at any other."""
    return " ".join(line.split())
