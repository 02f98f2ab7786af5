"""The vocabulary of a model of transformers, from its tokenizer.json."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError, first_line
from ..files import read_lines, reading
from .subwords import WORDS, TokenizerOptions, WordTokenizer
from .vocabulary import Vocabulary

BLOCK_CHARACTERS = 2**18  # characters of a text that are encoded at a time
UNUSED = re.compile(r"[<\[].*(unused|reserved|placeholder|extra_\d+\|).*[>\]]", re.IGNORECASE)
"""Names of tokens that models hold in reserve."""
NO_UTF8 = (0xC0, 0xC1, *range(0xF5, 0x100))  # bytes that occur in no text in UTF-8
CONTEXT = "the"  # the word that precedes a word whose tokens are looked up


@dataclass(frozen=True, eq=False)
class TokenizerVocabulary(Vocabulary):
    """The tokens of a tokenizer.json."""

    path: Path  # of the file
    tokenizer: Any  # a `tokenizers.Tokenizer`, without truncation and padding
    unknown: int | None  # the row of the token that stands for all unknown ones
    rows: int  # V of the embedding, which may have more rows than the tokenizer has tokens
    counts: Tensor | None  # (V,) int64 occurrences in a text
    byte_level: bool  # whether the characters of tokens stand for bytes, as GPT-2's do

    @classmethod
    def load(cls, path: Path, rows: int | None) -> TokenizerVocabulary:
        """The vocabulary of a file, as of `parse`."""
        expected = (
            "the model's tokenizer.json; save that of a model of a hub by "
            "AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)"
        )
        return cls.parse("".join(read_lines(path, expected)), path, rows)

    @classmethod
    def parse(cls, content: str, path: Path, rows: int | None) -> TokenizerVocabulary:
        """The vocabulary without counts, from the content of a tokenizer.json; `rows` None: as many
        as it has tokens."""
        import tokenizers

        with reading(path, "the model's tokenizer", Exception):  # a bare one of tokenizers
            saved = json.loads(content)
            unknown = saved["model"].get("unk_token", saved["model"].get("unk_id"))
            byte_level = "ByteLevel" in json.dumps(saved.get("decoder"))
            tokenizer = tokenizers.Tokenizer.from_str(content)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        unknown = tokenizer.token_to_id(unknown) if isinstance(unknown, str) else unknown
        rows = tokenizer.get_vocab_size(with_added_tokens=True) if rows is None else rows
        last = max(tokenizer.get_vocab(with_added_tokens=False).values(), default=-1)
        if last >= rows:
            raise UserError(
                f"{path}: found the token {last:,} beyond the {rows:,} rows; expected the model's"
            )
        return cls(path, tokenizer, unknown, rows, None, byte_level)

    def recount(self, text: str | Path) -> TokenizerVocabulary:
        """The vocabulary with the counts of a text."""
        return replace(self, counts=self.count_text(text))

    def count_text(self, text: str | Path) -> Tensor:
        """(V,) int64 occurrences in a text in UTF-8."""
        counts = np.zeros(self.rows, dtype=np.int64)
        for rows in self.encode_file(text):
            counts += np.bincount(rows, minlength=self.rows)
        if not counts.any():
            raise UserError(f"{text}: found no tokens; expected text to count the tokens in")
        return torch.from_numpy(counts)

    def encode_file(self, text: str | Path) -> Iterator[np.ndarray]:
        """The tokens of a text in blocks (n,) int64 of whole lines, without those that have no
        row."""
        with reading(text, "text in UTF-8", UnicodeDecodeError):
            with open(text, encoding="utf-8-sig") as file:  # without a byte-order mark
                # or longer lines; each a block for a core
                blocks = iter(lambda: "".join(file.readlines(BLOCK_CHARACTERS)), "")
                while batch := [*itertools.islice(blocks, os.cpu_count())]:
                    for encoding in self._encoded(self.tokenizer.encode_batch_fast, batch):
                        rows = np.array(encoding.ids, dtype=np.int64)
                        yield rows[rows < self.rows]

    def encode(self, text: str) -> Any:
        """A text as a `tokenizers.Encoding`, without special tokens."""
        return self._encoded(self.tokenizer.encode, text)

    def _encoded(self, encode: Callable[..., Any], text: str | list[str]) -> Any:
        try:
            return encode(text, add_special_tokens=False)
        except Exception as error:  # a bare one of tokenizers
            raise UserError(
                f"{self.path}: {first_line(error)}; expected a tokenizer that can encode any text"
            ) from error

    @cached_property
    def tokens(self) -> list[str]:
        """Tokens as the tokenizer writes them; a row without a token is named by its number."""
        tokens = [f"<row {row}>" for row in range(self.rows)]
        for token, row in self.tokenizer.get_vocab(with_added_tokens=True).items():
            if row < self.rows:
                tokens[row] = token
        return tokens

    @cached_property
    def special_ids(self) -> list[int]:
        """The special tokens, the token of unknown words, and the rows without a token."""
        special = {self.unknown}
        for row, token in self.tokenizer.get_added_tokens_decoder().items():
            if token.special:
                special.add(row)
        ordinary = {*self.tokenizer.get_vocab(with_added_tokens=True).values()} - special
        return sorted({*range(self.rows)} - ordinary)

    @property
    def unused(self) -> list[int]:
        """Rows without a token, tokens that are named as unused or reserved, and bytes that no
        UTF-8 has."""
        no_bytes = {chr(byte) if self.byte_level else f"<0x{byte:02X}>" for byte in NO_UTF8}
        unused = []
        for row, token in enumerate(self.tokens):
            if token == f"<row {row}>" or token in no_bytes or UNUSED.fullmatch(token):
                unused.append(row)
        return unused

    @property
    def excluded(self) -> Tensor:
        """(V,) bool, `special_ids` and `unused`."""
        excluded = torch.zeros(self.rows, dtype=torch.bool)
        excluded[[*self.special_ids, *self.unused]] = True
        return excluded

    def word_tokenizer(self, tokenizer: TokenizerOptions) -> WordTokenizer:
        """Splits words by the tokenizer of the model."""
        if replace(tokenizer, after_space=True) != WORDS:
            raise UserError(
                f"--bpe: found {tokenizer.bpe}; expected none, since the model has {self.path}"
            )
        index = dict(zip(self.tokens, range(self.rows), strict=True))
        for row in self.special_ids:
            index.pop(self.tokens[row], None)
        added = {token.content for token in self.tokenizer.get_added_tokens_decoder().values()}
        context = f"{CONTEXT} " if tokenizer.after_space else ""
        before = self.encode(context.strip()).ids

        def split(word: str) -> list[str]:
            """An added token is one, also where the space before it is a token of its own. No tokens
            if they overlap with the word before, or leave out a character."""
            if word in added:
                return [word]
            encoding = self.encode(context + word)
            covered: set[int] = set()
            for begin, end in encoding.offsets[len(before) :]:
                covered.update(range(begin, end))
            wanted = range(len(context), len(context) + len(word))
            if encoding.ids[: len(before)] != before or not covered.issuperset(wanted):
                return []
            return [self.tokens[row] for row in encoding.ids[len(before) :] if row < self.rows]

        return WordTokenizer("tokenizer.json", index, self.unknown, split)
