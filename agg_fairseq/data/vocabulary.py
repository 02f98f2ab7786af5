"""The vocabulary of a model with its training frequencies and frequency groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import UserError
from ..files import read_lines
from ..metrics import FrequencyGroups, frequency_groups, relative_frequency_groups
from ..metrics.groups import occurrence_groups
from ..names import LISTED_GROUPS
from .binarized import count_split, excluded_tokens, load_dictionary, training_pair
from .subwords import TokenizerOptions, WordTokenizer


class Vocabulary:
    """The tokens that the rows of an output embedding stand for. Its kinds have two methods:
    `word_tokenizer(options)` splits words into these tokens; `count_text(text)` are the occurrences
    (V,) int64 in a text, which for `BinarizedVocabulary` is the training split of a folder."""

    counts: Tensor | None  # (V,) int64 occurrences as a target in training, where they are known
    tokens: Sequence[str]  # V of them, as the dictionary or the tokenizer has them
    excluded: Tensor  # (V,) bool, rows that are in no frequency group
    special_ids: list[int]  # rows of tokens that stand for no text
    unused: list[int]  # rows that were certainly in no training text

    def groups(
        self,
        grouping: str,
        occurrences_in: str | Path | None = None,
        tokens: str | Path | None = None,
    ) -> FrequencyGroups:
        """Groups by one of `GROUPINGS`, by the occurrences in another text, or `LISTED_GROUPS` by a
        file with a token per line."""
        if tokens is not None:
            group, rows = -self.excluded.long(), {name: k for k, name in enumerate(self.tokens)}
            for line in read_lines(tokens, "a token per line"):
                if (token := line.rstrip("\n")) not in rows:
                    raise UserError(
                        f"{tokens}: found {token!r}, which is not in the vocabulary; expected a token "
                        "per line, as dict.txt or tokenizer.json writes it"
                    )
                group[rows[token]] = 1  # also a special one
            return FrequencyGroups(group, LISTED_GROUPS)
        if occurrences_in is not None:
            return occurrence_groups(self.count_text(occurrences_in), excluded=self.excluded)
        if self.counts is None:
            raise UserError(
                "--train-text: found none; expected a text to count tokens in, for the "
                "frequency groups, or --occurrences-in or --tokens"
            )
        group_counts = frequency_groups if grouping == "types" else relative_frequency_groups
        return group_counts(self.counts, excluded=self.excluded)


@dataclass(frozen=True, eq=False)
class BinarizedVocabulary(Vocabulary):
    """The vocabulary of a folder written by `fairseq-preprocess`."""

    dictionary: Any  # fairseq's, V entries; of a translation model that of the target side
    counts: Tensor  # (V,) int64 occurrences of each as a target in training
    languages: tuple[str, str] | None  # source and target of a translation model

    @classmethod
    def load(
        cls, data: str | Path, languages: tuple[str | None, str | None] | None = None
    ) -> BinarizedVocabulary:
        """The vocabulary of a folder, or of several as `binarized.folders` takes them; a None in
        `languages` stands for that of the only pair in the folder. Counted is the whole training
        split."""
        if languages is None:
            dictionary = load_dictionary(data)
        else:
            languages = languages if all(languages) else training_pair(data, *languages)
            dictionary = load_dictionary(data, f"dict.{languages[1]}.txt")
        return cls(dictionary, count_split(data, dictionary, "train", languages), languages)

    @property
    def tokens(self) -> Sequence[str]:
        """The tokens of dict.txt, after the special ones."""
        return self.dictionary.symbols

    @property
    def excluded(self) -> Tensor:
        """`excluded_tokens` of the dictionary."""
        return excluded_tokens(self.dictionary)

    @property
    def special_ids(self) -> list[int]:
        """Special tokens and fillers."""
        return self.excluded.nonzero().squeeze(1).tolist()

    @property
    def unused(self) -> list[int]:
        """Special tokens and fillers without occurrences."""
        return [row for row in self.special_ids if self.counts[row] == 0]

    def count_text(self, text: str | Path) -> Tensor:
        """(V,) int64 occurrences in the training split of a folder with the same dictionary."""
        other = BinarizedVocabulary.load(text, self.languages)
        if other.tokens != self.tokens:
            raise UserError(
                f"{text}: found another dictionary than that of the model; expected "
                "fairseq-preprocess with --srcdict or --tgtdict, the dict.txt of the model's data"
            )
        return other.counts

    def word_tokenizer(self, tokenizer: TokenizerOptions) -> WordTokenizer:
        """Splits words by the tokenizer that the data was encoded with."""
        return tokenizer.word_tokenizer(self.dictionary)
