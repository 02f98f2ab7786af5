"""Words as the tokens that a model sees for them in running text, by the tokeniser that its data was encoded with."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import UserError, first_line

FILES = {
    "words": (),
    "gpt2": ("gpt2_encoder_json", "gpt2_vocab_bpe"),
    "sentencepiece": ("sentencepiece_model",),
    "fastbpe": ("bpe_codes",),
    "subword_nmt": ("bpe_codes",),
}
"""The kinds of tokenisers, by fairseq's names, and the options that name the files of each, fairseq's too."""

SPACE = "Ġ"
"""How GPT-2 writes the space before a word."""
GPT2_SHARE = 0.2
"""A dictionary is of GPT-2's pieces where these make up so much of it: about 1 is usual, of words under 0.05."""
CODES = {
    "fastbpe": ("two pieces and a count", r"[^ ]+ [^ ]+ \d+"),
    "subword_nmt": ("two pieces", r"(?!#version:)[^ ]+ [^ ]+"),
}
"""What a line of codes holds, in words and as a pattern."""

Split = Callable[[str], list[str]]


@dataclass(frozen=True)
class Splitter:
    """Splits words into tokens of a dictionary.

    Args:
        dictionary: fairseq's.
        split: a word, as people write it, into tokens.
        readable: a token as people read it; that itself but for GPT-2's ids.
    """

    dictionary: Any
    split: Split
    readable: Callable[[str], str] = str

    def __call__(self, word: str) -> list[str]:
        """The tokens of a word that follows a space; they need not be in the dictionary."""
        return self.split(word)

    def indices(self, word: str) -> list[int]:
        """The places of a word's tokens in the dictionary; none, where one of them is not in it."""
        found = [self.dictionary.index(token) for token in self.split(word)]
        return [] if self.dictionary.unk() in found else found


def splitter(kind: str, dictionary: Any, **files: str | None) -> Splitter:
    """How words are split, as fairseq's `--bpe` names it; with `words`, each is a token.

    Args:
        kind: one of `FILES`.
        dictionary: fairseq's, that of the encoded data.
        files: those of the tokeniser, by the options of `FILES`.

    Raises:
        UserError: a file is not named, is of another kind, or cannot be read; the package that reads it is missing; or
            the dictionary is not of GPT-2's pieces, which may be in it as ids (`15496`) or as strings (`Ġhomepage`).
    """
    given = {name: path for name, path in files.items() if path is not None}
    for name in given:
        if name not in FILES[kind]:
            kinds = " or ".join(f"--bpe {other}" for other, names in FILES.items() if name in names)
            raise UserError(f"{_option(name)}: found it with --bpe {kind}; expected {kinds}")
    for name in FILES[kind]:
        if name not in given:
            raise UserError(f"--bpe {kind}: found no {_option(name)}; name the file that the data was encoded with")
        if not Path(given[name]).is_file():
            raise UserError(f"{_option(name)}: found no file {given[name]}; name that which the data was encoded with")
    return _BUILDERS[kind](dictionary, **given)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _words(dictionary: Any) -> Splitter:
    return Splitter(dictionary, lambda word: [word])


def _gpt2(dictionary: Any, gpt2_encoder_json: str, gpt2_vocab_bpe: str) -> Splitter:
    tokenizers = _package("gpt2", "tokenizers")
    try:
        model = tokenizers.models.BPE.from_file(gpt2_encoder_json, gpt2_vocab_bpe)
    except Exception as error:  # of no other type
        raise UserError(
            f"{gpt2_encoder_json}, {gpt2_vocab_bpe}: unreadable ({first_line(error)}); expected GPT-2's encoder.json "
            "and vocab.bpe"
        ) from error
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces = {str(index): piece for piece, index in tokenizer.get_vocab().items()}
    if _share(dictionary, pieces) >= GPT2_SHARE:
        by_id = _after_space(tokenizer.encode, lambda encoding: map(str, encoding.ids))
        return Splitter(dictionary, by_id, lambda token: pieces.get(token, token))
    if _share(dictionary, (piece for piece in pieces.values() if piece.startswith(SPACE))) >= GPT2_SHARE:
        return Splitter(dictionary, _after_space(tokenizer.encode, lambda encoding: encoding.tokens))
    raise UserError(
        f"--bpe gpt2: found few of the pieces of {gpt2_encoder_json} in the dictionary, neither as ids (15496) nor as "
        f"strings ({SPACE}homepage); expected data encoded with it; choose another --bpe"
    )


def _after_space(encode: Callable[[str], Any], tokens: Callable[[Any], Iterable[str]]) -> Split:
    """In running text, a word is encoded with the space before it."""
    return lambda word: list(tokens(encode(f" {word}")))


def _share(dictionary: Any, tokens: Iterable[str]) -> float:
    """How much of a dictionary, its special tokens aside, is among `tokens`."""
    entries = dictionary.symbols[dictionary.nspecial :]
    return len(set(tokens).intersection(entries)) / max(len(entries), 1)


def _sentencepiece(dictionary: Any, sentencepiece_model: str) -> Splitter:
    sentencepiece = _package("sentencepiece", "sentencepiece")
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=sentencepiece_model)
    except (RuntimeError, OSError) as error:
        raise UserError(
            f"{sentencepiece_model}: unreadable ({first_line(error)}); expected a model of sentencepiece"
        ) from error
    return Splitter(dictionary, lambda word: processor.encode(word, out_type=str))


def _fastbpe(dictionary: Any, bpe_codes: str) -> Splitter:
    package = _package("fastbpe", "fastBPE", remedy="pip install fastBPE")
    _check_codes("fastbpe", bpe_codes)
    bpe = package.fastBPE(bpe_codes)
    return Splitter(dictionary, lambda word: bpe.apply([word])[0].split(" "))


def _subword_nmt(dictionary: Any, bpe_codes: str) -> Splitter:
    apply_bpe = _package("subword_nmt", "subword_nmt.apply_bpe")
    _check_codes("subword_nmt", bpe_codes)
    with open(bpe_codes, encoding="utf-8") as file:
        bpe = apply_bpe.BPE(file)
    return Splitter(dictionary, lambda word: bpe.segment_tokens([word]))


_BUILDERS: dict[str, Callable[..., Splitter]] = {
    "words": _words,
    "gpt2": _gpt2,
    "sentencepiece": _sentencepiece,
    "fastbpe": _fastbpe,
    "subword_nmt": _subword_nmt,
}


def _package(kind: str, name: str, *, remedy: str = "pip install 'agg-fairseq[eval]'") -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"--bpe {kind}: the package {name.partition('.')[0]} is missing; {remedy}") from error


def _check_codes(kind: str, path: str) -> None:
    """Sees that a file of codes has the form of its library: both end the whole process over another."""
    said, pattern = CODES[kind]
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            lines = [line.strip("\r\n ") for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); expected the codes of {kind}") from error
    first = 1 if kind == "subword_nmt" and lines and re.fullmatch(r"#version: 0\.[12]", lines[0]) else 0
    if len(lines) == first:
        raise UserError(f"{path}: found no codes; expected those of {kind}")
    for number, line in enumerate(lines[first:], first + 1):
        if not re.fullmatch(pattern, line):
            raise UserError(f"{path}, line {number}: found {line!r}; expected {said}, as {kind} writes them")
