"""The embeddings of checkpoints, and the vocabulary that they are over, with its training frequencies."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.alignments import training_pair
from ..data.binarized import count_tokens, load_dictionary
from ..errors import UserError
from ..metrics import FrequencyGroups, frequency_groups, relative_frequency_groups
from ..metrics.groups import AGG_SHARES, AGPS_FREQUENCIES
from .checkpoints import check_finite, check_vocabulary, open_model, options_of_model, task_options

OUTPUT_NAMES = ("decoder.output_projection.weight", "decoder.fc_out.weight")
INPUT_NAME = "decoder.embed_tokens.weight"
TYING = ("share_decoder_input_output_embed", "share_all_embeddings")
"""The options of models whose output embedding is the input embedding."""
GROUPINGS = {
    "types": f"{'/'.join(f'{share:.0%}' for share in AGG_SHARES)}-of-types",
    "frequency": f"{'/'.join(f'{frequency:.0e}' for frequency in AGPS_FREQUENCIES)}-of-tokens",
}
"""The ways to group tokens by frequency, as signatures have them."""


@dataclass(frozen=True)
class Embeddings:
    """The output embedding of a checkpoint.

    Args:
        path: of the checkpoint.
        parameter: its name in the checkpoint.
        tied: it is the input embedding too.
        weight: W (V, D) float32, all rows, those of special tokens included.
    """

    path: str
    parameter: str
    tied: bool
    weight: Tensor

    @property
    def matrix(self) -> str:
        """As signatures have it."""
        return f"{self.parameter}{'(tied)' if self.tied else ''}"


@dataclass(frozen=True)
class Vocabulary:
    """What the output embedding is over.

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

    def groups(self, grouping: str) -> FrequencyGroups:
        """Frequent, medium and rare tokens, by one of `GROUPINGS`; pad and bos, never a target, are in no group."""
        excluded = (self.dictionary.pad(), self.dictionary.bos())
        of_counts = frequency_groups if grouping == "types" else relative_frequency_groups
        return of_counts(self.counts, excluded=excluded)

    def no_words(self) -> list[int]:
        """The special tokens, and the entries without occurrences that fairseq fills a dictionary up with."""
        filling = (index for index in (self.counts == 0).nonzero().squeeze(1).tolist() if self._is_filling(index))
        return sorted({*range(self.dictionary.nspecial), *filling})

    def _is_filling(self, index: int) -> bool:
        return re.fullmatch(r"madeupword\d{4,}", self.dictionary[index]) is not None


def add_grouping(parser: argparse.ArgumentParser, default: str = "types") -> None:
    """`--groups`, one of `GROUPINGS`."""
    parser.add_argument(
        "--groups",
        choices=tuple(GROUPINGS),
        default=default,
        help="frequent, medium and rare tokens: types, the first 30%%, next 50%% and last 20%% of the vocabulary; "
        "frequency, those that make up at least 1e-5, at least 1e-6 and less of the training text "
        "(default: %(default)s)",
    )


def add_vocabulary(parser: argparse.ArgumentParser) -> None:
    """`--data`, where the frequencies come from, and `--groups`."""
    parser.add_argument("--data", required=True, help="folder written by fairseq-preprocess, for the frequencies")
    add_grouping(parser)


def load_embeddings(path: str | Path) -> Embeddings:
    """The output embedding of a checkpoint; the input embedding where a tied model saves no other.

    Raises:
        UserError: as `open_model`, there is no embedding of a known name, or it is no matrix of finite numbers.
    """
    state = open_model(path)
    parameters = state["model"]
    name = next((name for name in OUTPUT_NAMES if name in parameters), None)
    if name is None and INPUT_NAME in parameters and any(options_of_model(path, state).get(option) for option in TYING):
        name = INPUT_NAME
    if name is None:
        raise UserError(f"{path}: found no output embedding; expected {OUTPUT_NAMES[0]} or a tied one")
    weight = _matrix(path, name, parameters[name])
    tied = INPUT_NAME in parameters and torch.equal(_matrix(path, INPUT_NAME, parameters[INPUT_NAME]), weight)
    return Embeddings(str(path), name, tied, weight)


def _matrix(path: str | Path, name: str, value: Any) -> Tensor:
    """An embedding, in float32."""
    dense = isinstance(value, Tensor) and value.layout == torch.strided and value.device.type == "cpu"
    if not dense or not value.is_floating_point() or value.dim() != 2 or value.is_quantized:
        found = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise UserError(f"{path}: found {found} as {name}; expected a dense matrix of floating-point numbers")
    if 0 in value.shape:
        raise UserError(f"{path}: found {name} of shape {tuple(value.shape)}; expected tokens and features")
    weight = value.float()
    check_finite(path, {name: weight})
    return weight


def load_all(paths: Sequence[str], data: str | Path) -> tuple[list[Embeddings], Vocabulary]:
    """The embeddings of several checkpoints over one vocabulary, that of `data`.

    Raises:
        UserError: as `load_embeddings` and `load_vocabulary`; or one is over another number of tokens.
    """
    embeddings = [load_embeddings(path) for path in paths]
    vocabulary = load_vocabulary(paths, data)
    for one in embeddings:
        check_vocabulary(one.path, one.weight, data, len(vocabulary.dictionary))
    return embeddings, vocabulary


def load_vocabulary(paths: Sequence[str], data: str | Path) -> Vocabulary:
    """The vocabulary of language models or translation models, from the folder that they were trained on.

    Args:
        paths: checkpoints, all of the same task and languages.
        data: folder written by `fairseq-preprocess`, with the training split.

    Raises:
        UserError: a task but these two; checkpoints of different tasks or languages; as `corpus.count_tokens` and
            `training_pair`.
    """
    languages = [_languages(path, data) for path in paths]
    for path, found in zip(paths, languages, strict=True):
        if found != languages[0]:
            raise UserError(f"{path}: found {_said(found)}; expected {_said(languages[0])}, as {paths[0]}")
    if languages[0] is None:
        dictionary = load_dictionary(data)
        return Vocabulary(dictionary, count_tokens(data, dictionary), None, joined=False)
    source, target = languages[0]
    dictionary = load_dictionary(data, f"dict.{target}.txt")
    splits = [f"train.{pair}.{target}" for pair in (f"{source}-{target}", f"{target}-{source}")]
    split = next((split for split in splits if (Path(data) / f"{split}.bin").is_file()), splits[0])
    joined = load_dictionary(data, f"dict.{source}.txt").symbols == dictionary.symbols
    return Vocabulary(dictionary, count_tokens(data, dictionary, split), (source, target), joined)


def _languages(path: str, data: str | Path) -> tuple[str, str] | None:
    """Source and target language of a translation model; None for a language model."""
    options = task_options(open_model(path))
    name = options.get("_name")
    if name == "language_modeling":
        return None
    if name != "translation":
        raise UserError(f"{path}: found a model of the task {name}; expected language_modeling or translation")
    given = options.get("source_lang"), options.get("target_lang")
    return given if all(given) else training_pair(data, *given)


def _said(languages: tuple[str, str] | None) -> str:
    return "a language model" if languages is None else f"a model from {languages[0]} to {languages[1]}"
