"""Splits words into the tokens that a model sees for them, with the tokenizer that its data was encoded with."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import UserError, first_line

FILES = {
    "words": (),
    "gpt2": ("gpt2_encoder_json", "gpt2_vocab_bpe"),
    "sentencepiece": ("sentencepiece_model",),
    "fastbpe": ("bpe_codes",),
    "subword_nmt": ("bpe_codes",),
}
"""The kinds of tokenizers and the options that name their files, both with the names that fairseq gives them."""

SPACE = "Ġ"
"""How GPT-2 writes the space before a word."""
WORD_STARTS = ("▁", SPACE)
"""How sentencepiece and GPT-2 mark a piece that begins a word."""
CONTINUED = "@@"
"""How fastBPE and subword-nmt mark a piece that does not end a word."""
PIECES_SHARE = 0.2
"""A dictionary is taken for one of pieces if they make up so much of it: few words look like pieces."""
CODES_SHARE = 0.05
"""The smallest share of tokens that end in `@@` with codes; it is small, since with many codes most words are whole."""
PIECES = {
    "sentencepiece": ("begin with ▁", r"▁.*"),
    "gpt2": ("are pieces of GPT-2, or its ids", rf"{SPACE}.*|[0-9]+"),
    "subword_nmt or fastbpe": (f"end in {CONTINUED}", rf".*{CONTINUED}"),
}
"""What the pieces of each kind of tokenizer look like, in words and as a pattern."""
CODES = {
    "fastbpe": ("two pieces and a count", r"[^ ]+ [^ ]+ \d+"),
    "subword_nmt": ("two pieces", r"(?!#version:)[^ ]+ [^ ]+"),
}
"""What a line of the codes of each kind holds, in words and as a pattern."""

Split = Callable[[str], list[str]]


@dataclass(frozen=True)
class Splitter:
    """Splits words into tokens of a vocabulary.

    Args:
        kind: of the tokenizer, as signatures say it.
        index: the row of each token that stands for text; the special ones are left out.
        unknown: the row of the token for unknown words, if there is one.
        split: a word, as people write it, into tokens.
        readable: returns a token as people read it: itself, except for GPT-2's ids.
    """

    kind: str
    index: Mapping[str, int]
    unknown: int | None
    split: Split
    readable: Callable[[str], str] = str

    def __call__(self, word: str) -> list[str]:
        """The tokens of a word, in the vocabulary or not; none if no pieces spell it."""
        return self.split(word)

    def indices(self, word: str) -> list[int]:
        """The rows of a word's tokens; none if one of them is special or not in the vocabulary."""
        found = [self.index.get(token) for token in self.split(word)]
        return [] if None in found else found


@dataclass(frozen=True)
class Tokenizer:
    """How the words of running text were split into tokens when the data was encoded.

    Args:
        kind: one of `FILES`, as fairseq's `--bpe` names it; with "words", each word is a token.
        gpt2_encoder_json: encoder.json of "gpt2".
        gpt2_vocab_bpe: vocab.bpe of "gpt2".
        sentencepiece_model: model of "sentencepiece".
        bpe_codes: codes of "fastbpe" and of "subword_nmt".
        after_space: whether "gpt2" splits a word as in running text, after a space (`Ġsea`), or as at the beginning of
            a text (`sea`). The other kinds have one form only.
    """

    kind: str = "words"
    gpt2_encoder_json: Path | None = None
    gpt2_vocab_bpe: Path | None = None
    sentencepiece_model: Path | None = None
    bpe_codes: Path | None = None
    after_space: bool = True

    @property
    def files(self) -> dict[str, Path]:
        """The files that are given, by the names of their options."""
        paths = {name: getattr(self, name) for name in dict.fromkeys(itertools.chain(*FILES.values()))}
        return {name: path for name, path in paths.items() if path is not None}

    def splitter(self, dictionary: Any) -> Splitter:
        """Splits words into tokens of a dictionary.

        Args:
            dictionary: fairseq's, that of the encoded data.

        Raises:
            UserError: a file is not given, is of another kind, or cannot be read; the package that reads it is missing;
                or the dictionary is not of such pieces. Those of GPT-2 may be in it as ids (`15496`) or as strings
                (`Ġhomepage`).
        """
        for name in self.files:
            if name not in FILES[self.kind]:
                kinds = " or ".join(f"--bpe {other}" for other, names in FILES.items() if name in names)
                raise UserError(f"{_option(name)}: found it with --bpe {self.kind}; expected {kinds}")
        paths = {}
        for name in FILES[self.kind]:
            if name not in self.files:
                raise UserError(
                    f"--bpe {self.kind}: found no {_option(name)}; name the file that the data was encoded with"
                )
            path = str(self.files[name])
            if not Path(path).is_file():
                raise UserError(f"{_option(name)}: found no file {path}; name that which the data was encoded with")
            if os.fsencode(path).decode(errors="replace") != path:
                raise UserError(
                    f"{_option(name)}: found {path!r}; expected a name in UTF-8, as the packages that read it do; "
                    "rename the file"
                )
            paths[name] = path
        options = {"space": " " if self.after_space else ""} if self.kind == "gpt2" else {}
        index = {token: row for token, row in dictionary.indices.items() if row >= dictionary.nspecial}
        return Splitter(self.kind, index, dictionary.unk(), *_BUILDERS[self.kind](dictionary, **paths, **options))


WORDS = Tokenizer()
"""Each word of running text is a token of its own."""


def word_starts(pieces: Collection[str]) -> tuple[str, ...]:
    """The marks of those pieces that begin a word. In a vocabulary of words, hardly any token has one: none."""
    shares = {mark: sum(piece.startswith(mark) for piece in pieces) / max(len(pieces), 1) for mark in WORD_STARTS}
    return tuple(mark for mark, share in shares.items() if share >= PIECES_SHARE)


def has_continued(pieces: Collection[str]) -> bool:
    """Whether the pieces are those of fastBPE or subword-nmt, of which some end in `@@`."""
    return sum(piece.endswith(CONTINUED) for piece in pieces) >= CODES_SHARE * max(len(pieces), 1)


def token_of_word(word: str, tokens: Container[str], starts: Iterable[str]) -> str:
    """The token that is a word: in a vocabulary of pieces with `▁list` and `list`, the first is the word `list`.

    The second is the end of other words. It cannot be asked for, but can be a neighbor of other words.

    Args:
        word: without a mark.
        tokens: of the vocabulary.
        starts: as of `word_starts`.
    """
    return next((mark + word for mark in starts if mark + word in tokens), word)


def check_words(tokens: Collection[str]) -> None:
    """Checks that the tokens of a dictionary, without its special ones, look like words.

    Raises:
        UserError: many of them look like the pieces of a tokenizer.
    """
    for kind, (look, pattern) in PIECES.items():
        pieces = sum(1 for token in tokens if re.fullmatch(pattern, token))
        if pieces and pieces >= PIECES_SHARE * len(tokens):
            raise UserError(
                f"--bpe words: found {pieces:,} of the dictionary's {len(tokens):,} tokens that {look}; expected "
                f"words; choose --bpe {kind}, as the data was encoded"
            )


def _entries(dictionary: Any) -> list[str]:
    """The tokens of a dictionary that are not special."""
    return dictionary.symbols[dictionary.nspecial :]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def gpt2_tokenizer(gpt2_encoder_json: str, gpt2_vocab_bpe: str) -> Any:
    """Loads GPT-2's byte-level sub-words as a `tokenizers.Tokenizer`.

    Raises:
        UserError: a file cannot be read; or the package `tokenizers` is missing.
    """
    tokenizers = import_package("--bpe gpt2", "tokenizers")
    try:
        # The package ends in a panic of Rust, which is no `Exception`, where an id is not a whole number.
        ids = json.loads(Path(gpt2_encoder_json).read_bytes().decode("utf-8"))
        if not isinstance(ids, dict) or not all(type(index) is int and 0 <= index < 2**31 for index in ids.values()):
            raise ValueError("expected an id for each piece")
        model = tokenizers.models.BPE.from_file(gpt2_encoder_json, gpt2_vocab_bpe)
    except Exception as error:  # the package raises no other type
        raise UserError(
            f"{gpt2_encoder_json}, {gpt2_vocab_bpe}: unreadable ({first_line(error)}); expected GPT-2's encoder.json "
            "and vocab.bpe"
        ) from error
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def _gpt2(
    dictionary: Any, gpt2_encoder_json: str, gpt2_vocab_bpe: str, space: str
) -> tuple[Split, Callable[[str], str]]:
    """Splits a word with `space` before it; into nothing if a byte of it has no piece."""
    tokenizer = gpt2_tokenizer(gpt2_encoder_json, gpt2_vocab_bpe)
    pieces = {str(index): piece for piece, index in tokenizer.get_vocab().items()}

    def split(word: str, tokens: Callable[[Any], Iterable[str]]) -> list[str]:
        encoding = tokenizer.encode(space + word)
        spelled = "".join(part for part, _ in tokenizer.pre_tokenizer.pre_tokenize_str(space + word))
        return list(tokens(encoding)) if "".join(encoding.tokens) == spelled else []

    if _share(dictionary, pieces) >= PIECES_SHARE:
        by_id = partial(split, tokens=lambda encoding: map(str, encoding.ids))
        return by_id, lambda token: pieces.get(token, token)
    if _share(dictionary, (piece for piece in pieces.values() if piece.startswith(SPACE))) >= PIECES_SHARE:
        return partial(split, tokens=lambda encoding: encoding.tokens), str
    raise UserError(
        f"--bpe gpt2: found few of the pieces of {gpt2_encoder_json} in the dictionary, neither as ids (15496) nor as "
        f"strings ({SPACE}homepage); expected data encoded with it; choose another --bpe"
    )


def _share(dictionary: Any, tokens: Iterable[str]) -> float:
    """The share of a dictionary, without its special tokens, that is among `tokens`."""
    entries = _entries(dictionary)
    return len(set(tokens).intersection(entries)) / max(len(entries), 1)


def _sentencepiece(dictionary: Any, sentencepiece_model: str) -> tuple[Split]:
    sentencepiece = import_package("--bpe sentencepiece", "sentencepiece")
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=sentencepiece_model)
        pieces = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
    except (RuntimeError, OSError, UnicodeDecodeError) as error:  # the last: of a piece
        raise UserError(
            f"{sentencepiece_model}: unreadable ({first_line(error)}); expected a model of sentencepiece"
        ) from error
    if _share(dictionary, pieces) < PIECES_SHARE:
        raise UserError(
            f"--bpe sentencepiece: found few of the pieces of {sentencepiece_model} in the dictionary; expected data "
            "encoded with it; choose another --bpe"
        )
    return (lambda word: processor.encode(word, out_type=str),)


def _fastbpe(dictionary: Any, bpe_codes: str) -> tuple[Split]:
    package = import_package("--bpe fastbpe", "fastBPE", remedy="pip install fastBPE")
    _check_codes("fastbpe", bpe_codes)
    _check_continued("fastbpe", dictionary)
    bpe = package.fastBPE(bpe_codes)
    return (lambda word: bpe.apply([word])[0].split(" "),)


def _subword_nmt(dictionary: Any, bpe_codes: str) -> tuple[Split]:
    apply_bpe = import_package("--bpe subword_nmt", "subword_nmt.apply_bpe")
    _check_codes("subword_nmt", bpe_codes)
    _check_continued("subword_nmt", dictionary)
    with open(bpe_codes, encoding="utf-8", newline="\n") as file:  # lines end as in `_check_codes`
        bpe = apply_bpe.BPE(file)
    return (lambda word: bpe.segment_tokens([word]),)


def _words(dictionary: Any) -> tuple[Split]:
    starts = word_starts(_entries(dictionary))
    return (lambda word: [token_of_word(word, dictionary.indices, starts)],)


_BUILDERS: dict[str, Callable[..., tuple[Callable[[str], Any], ...]]] = {
    "words": _words,
    "gpt2": _gpt2,
    "sentencepiece": _sentencepiece,
    "fastbpe": _fastbpe,
    "subword_nmt": _subword_nmt,
}


def import_package(user: str, name: str, *, remedy: str = "pip install '.[eval]'") -> ModuleType:
    """Imports a package that only some uses of this one need.

    Args:
        user: what needs it, for the error.
        name: of the module.
        remedy: how it is installed.

    Raises:
        UserError: it cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{user}: the package {name.partition('.')[0]} is missing; {remedy}") from error


def _check_continued(kind: str, dictionary: Any) -> None:
    """Checks that a dictionary has pieces that do not end a word."""
    if not has_continued(_entries(dictionary)):
        raise UserError(
            f"--bpe {kind}: found few tokens that end in {CONTINUED} in the dictionary; expected data encoded with it; "
            "choose another --bpe"
        )


def _check_codes(kind: str, path: str) -> None:
    """Checks the form of a file of codes, since both libraries end the whole process if it has another form."""
    form, pattern = CODES[kind]
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
            raise UserError(f"{path}, line {number}: found {line!r}; expected {form}, as {kind} writes them")
