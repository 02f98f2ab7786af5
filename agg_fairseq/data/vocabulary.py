"""The vocabulary of a model with its training frequencies, and the frequency groups of its tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..metrics import FrequencyGroups, frequency_groups, relative_frequency_groups
from ..metrics.groups import AGG_SHARES, AGPS_FREQUENCIES
from .alignments import training_pair
from .binarized import count_tokens, load_dictionary

GROUPINGS = {
    "types": f"{'/'.join(f'{share:.0%}' for share in AGG_SHARES)}-of-types",
    "frequency": f"{'/'.join(f'{frequency:.0e}' for frequency in AGPS_FREQUENCIES)}-of-tokens",
}
"""The ways to group tokens by frequency, as signatures say them."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that the rows of an output embedding stand for.

    Args:
        dictionary: fairseq's, V entries; that of the target side for a translation model.
        counts: (V,) int64 occurrences of each as a target in the training split.
        languages: source and target of a translation model, or None.
        joined: a translation model whose source dictionary is the same.
    """

    dictionary: Any
    counts: Tensor
    languages: tuple[str, str] | None
    joined: bool

    @classmethod
    def load(cls, data: str | Path, languages: tuple[str | None, str | None] | None = None) -> Vocabulary:
        """The vocabulary of a folder written by `fairseq-preprocess`, with the training split.

        Args:
            data: the folder.
            languages: None for a language model; source and target of a translation model, where None stands for
                the only pair in the folder.

        Raises:
            UserError: as `load_dictionary`, `count_tokens` and `training_pair`.
        """
        if languages is None:
            dictionary = load_dictionary(data)
            return cls(dictionary, count_tokens(data, dictionary), None, joined=False)
        source, target = languages if all(languages) else training_pair(data, *languages)
        dictionary = load_dictionary(data, f"dict.{target}.txt")
        splits = [f"train.{pair}.{target}" for pair in (f"{source}-{target}", f"{target}-{source}")]
        split = next((split for split in splits if (Path(data) / f"{split}.bin").is_file()), splits[0])
        joined = load_dictionary(data, f"dict.{source}.txt").symbols == dictionary.symbols
        return cls(dictionary, count_tokens(data, dictionary, split), (source, target), joined)

    def groups(self, grouping: str) -> FrequencyGroups:
        """Frequent, medium and rare tokens, by one of `GROUPINGS`; pad and bos, never targets, are in none."""
        excluded = (self.dictionary.pad(), self.dictionary.bos())
        of_counts = frequency_groups if grouping == "types" else relative_frequency_groups
        return of_counts(self.counts, excluded=excluded)

    def no_words(self) -> list[int]:
        """The special tokens, and the entries without occurrences that fairseq pads a dictionary with."""
        unseen = (self.counts == 0).nonzero().squeeze(1).tolist()
        padding = (index for index in unseen if re.fullmatch(r"madeupword\d{4,}", self.dictionary[index]))
        return sorted({*range(self.dictionary.nspecial), *padding})
