"""Splits text into tokens by fairseq's encoders, as `fairseq-interactive --bpe` does."""

import argparse
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import UserError, first_line, flag
from ..files import read_lines

FILES = {
    "words": (),
    "gpt2": ("gpt2_encoder_json", "gpt2_vocab_bpe"),
    "sentencepiece": ("sentencepiece_model",),
    "subword_nmt": ("bpe_codes",),
    "fastbpe": ("bpe_codes",),
}
"""The kinds of tokenizers and the options that name their files, as fairseq names them."""
WORD_STARTS = ("▁", "Ġ")  # how sentencepiece and GPT-2 mark a piece that begins a word
PIECES_SHARE = 0.2
"""A dictionary is of pieces if more of its tokens begin so: 66% of GPT-2's do."""


@dataclass(frozen=True)
class WordTokenizer:
    """Splits words into tokens of a vocabulary."""

    kind: str  # of the tokenizer, as signatures say it
    index: Mapping[str, int]  # the row of each token, without special ones
    unknown: int | None  # the row of the token for unknown words, if there is one
    split: Callable[[str], list[str]]  # the tokens of a text; none if no pieces spell it
    readable: Callable[[str], str] = str  # a token as people read it: GPT-2's ids as pieces

    def indices(self, word: str) -> list[int]:
        """The rows of a word's tokens; none if one of them is special or not in the vocabulary."""
        rows = [self.index.get(token) for token in self.split(word)]
        return [] if None in rows else rows


@dataclass(frozen=True)
class TokenizerOptions:
    """How the words of running text were split into tokens when the data was encoded.

    Args:
        bpe: how words are split into tokens of the dictionary; with words, each word is one token.
        gpt2_encoder_json: encoder.json of gpt2.
        gpt2_vocab_bpe: vocab.bpe of gpt2.
        sentencepiece_model: model of sentencepiece.
        bpe_codes: codes of subword_nmt, or of fastbpe, which reads both.
        after_space: whether gpt2 splits a word as after a space (`Ġsea`), or as at the beginning of
            a text (`sea`).
    """

    bpe: str = "words"
    gpt2_encoder_json: Path | None = None
    gpt2_vocab_bpe: Path | None = None
    sentencepiece_model: Path | None = None
    bpe_codes: Path | None = None
    after_space: bool = True

    def __post_init__(self) -> None:
        for name in {*chain(*FILES.values())} - {*FILES[self.bpe]}:
            if getattr(self, name) is not None:
                raise UserError(
                    f"{flag(name)}: found it with --bpe {self.bpe}, which does not read it"
                )

    def word_tokenizer(self, dictionary: Any) -> WordTokenizer:
        """Splits text into tokens of fairseq's dictionary, in which the pieces of GPT-2 may be ids
        (`15496`) or strings (`Ġhomepage`)."""
        index = {}
        for token, row in dictionary.indices.items():
            if row >= dictionary.nspecial:
                index[token] = row
        if self.bpe == "words":
            find_token = find_word(index)
            return WordTokenizer(
                "words", index, dictionary.unk(), lambda text: list(map(find_token, text.split()))
            )
        encoder, before = self._encoder(), ""
        written: dict[str, str] = {}  # tokens of the encoder, as the dictionary has them
        readable: dict[str, str] = {}
        if self.bpe == "gpt2":
            before = " " * self.after_space
            pieces = {str(number): piece for number, piece in encoder.bpe.decoder.items()}
            has_ids = sum(map(str.isdecimal, index)) >= PIECES_SHARE * len(index)
            if has_ids:
                readable = pieces
            else:
                written = pieces

        def split(text: str) -> list[str]:
            if self.bpe != "gpt2":  # fairseq splits at any white space, subword-nmt at " " alone
                text = " ".join(text.split())
            try:
                tokens = encoder.encode(before + text).split()
            except KeyError:  # a piece that encoder.json lacks
                return []
            return [written.get(token, token) for token in tokens]

        return WordTokenizer(
            self.bpe, index, dictionary.unk(), split, lambda token: readable.get(token, token)
        )

    def encode_lines(self, path: str | Path, dictionary: Any) -> Iterator[list[int]]:
        """The rows of the tokens of each line of a text, `<unk>` for those that the dictionary
        lacks; `</s>` in a line stands for the end of a line."""
        split = replace(self, after_space=False).word_tokenizer(dictionary).split
        for line in read_lines(path, "text in UTF-8"):
            rows: list[int] = []
            for part in re.split("(</s>)", line):
                if part == "</s>":
                    rows.append(dictionary.eos())
                elif part.strip():
                    tokens = split(part.strip()) or [dictionary.unk_word]
                    rows.extend(map(dictionary.index, tokens))
            yield rows

    def _encoder(self) -> Any:
        from fairseq.data.encoders import build_bpe

        files = {}
        for name in FILES[self.bpe]:
            if getattr(self, name) is None:
                raise UserError(
                    f"{flag(name)}: found none; name the file that the data was encoded with"
                )
            files[name] = str(getattr(self, name))
        expected = f"what --bpe {self.bpe} reads"
        if "bpe_codes" in files:
            path = files["bpe_codes"]
            lines = list(read_lines(path, expected))
            spaces = {line.count(" ") for line in lines}
            if self.bpe == "subword_nmt" and spaces == {2}:
                raise UserError(f"{path}: found the codes of fastBPE; expected --bpe fastbpe")
            is_of_subword_nmt = spaces == {1} and lines[0].rstrip() == "#version: 0.2"
            # fastBPE would read beyond a shorter line
            if self.bpe == "fastbpe" and lines and spaces != {2} and not is_of_subword_nmt:
                raise UserError(
                    f"{path}: unreadable (found other lines than `a b 12`); expected {expected}"
                )
        try:
            return build_bpe(argparse.Namespace(bpe=self.bpe, **files))
        except ImportError as error:
            remedy = "pip install '.[eval]'"
            if self.bpe == "fastbpe":
                remedy = "pip install cython, then: pip install --no-build-isolation fastBPE"
            raise UserError(f"--bpe {self.bpe}: {first_line(error)}; {remedy}") from error
        # a damaged file; subword-nmt exits over a line of another form
        except (Exception, SystemExit) as error:
            raise UserError(
                f"{', '.join(files.values())}: unreadable ({first_line(error)}); "
                f"expected {expected}"
            ) from error


WORDS = TokenizerOptions()  # each word of running text is a token of its own


def find_word(tokens: Collection[str]) -> Callable[[str], str]:
    """Returns a function that gives the token of a word: itself, or in a vocabulary of pieces
    `▁list` for `list`, which is the end of other words."""
    marks = []
    for mark in WORD_STARTS:
        if sum(token.startswith(mark) for token in tokens) >= PIECES_SHARE * len(tokens):
            marks.append(mark)
    return lambda word: next((mark + word for mark in marks if mark + word in tokens), word)
