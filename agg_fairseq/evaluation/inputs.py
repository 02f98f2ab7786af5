"""What evaluations ask of their inputs: checkpoints of one vocabulary, a split that is there, a device that works."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from ..checkpoint import Checkpoint
from ..data.alignments import training_pair
from ..data.binarized import load_dictionary
from ..data.vocabulary import Vocabulary
from ..errors import UserError


def load_vocabulary(checkpoints: Mapping[str, Checkpoint], data: str | Path) -> Vocabulary:
    """The vocabulary of language models or translation models, from the folder that they were trained on.

    Args:
        checkpoints: all of the same task and languages; the embeddings that they hold are not looked at.
        data: folder written by `fairseq-preprocess`, with the training split.

    Raises:
        UserError: another task; checkpoints of different tasks or languages; as `Vocabulary.load`.
    """
    languages = []
    for checkpoint in checkpoints.values():
        found = checkpoint.languages
        languages.append(found if found is None or all(found) else training_pair(data, *found))
        if languages[-1] != languages[0]:
            kinds = [
                "a language model" if pair is None else f"a model from {pair[0]} to {pair[1]}" for pair in languages
            ]
            first = next(iter(checkpoints.values()))
            raise UserError(f"{checkpoint}: found {kinds[-1]}; expected {kinds[0]}, as {first}")
    return Vocabulary.load(data, languages[0])


def load_embedding_vocabulary(checkpoints: Mapping[str, Checkpoint], data: str | Path) -> Vocabulary:
    """As `load_vocabulary`, for checkpoints whose output embeddings are all over it.

    Raises:
        UserError: as `load_vocabulary` and `Checkpoint.output_embedding`; an embedding over another number of tokens.
    """
    for checkpoint in checkpoints.values():
        checkpoint.output_embedding  # noqa: B018 — a file that is no model is refused before the data is counted
    vocabulary = load_vocabulary(checkpoints, data)
    for checkpoint in checkpoints.values():
        checkpoint.check_vocabulary(len(vocabulary.dictionary), data)
    return vocabulary


def matrix_signature(checkpoints: Mapping[str, Checkpoint]) -> str:
    """The names of the output embeddings, each once, as signatures say them."""
    return ",".join(dict.fromkeys(checkpoint.output_embedding.description for checkpoint in checkpoints.values()))


def check_language_models(checkpoints: Mapping[str, Checkpoint], data: str | Path) -> list[int]:
    """Checks, without building them, that all are language models over the dictionary of `data`.

    Returns:
        The number of tokens per block that each was trained with.

    Raises:
        UserError: another task, or another number of tokens than in the dictionary.
    """
    vocabulary, lengths = len(load_dictionary(data)), []
    for checkpoint in checkpoints.values():
        options = checkpoint.task_options
        if not checkpoint.is_language_model:
            found = options.get("_name")
            raise UserError(f"{checkpoint}: found a model of the task {found}; expected language_modeling")
        checkpoint.check_vocabulary(vocabulary, data)
        length = options.get("tokens_per_sample") or 1024
        if not isinstance(length, int):
            raise UserError(f"{checkpoint}: found {length!r} for tokens_per_sample; expected a number")
        lengths.append(length)
    return lengths


def check_split(data: str | Path, split: str) -> None:
    """Checks that a folder has a binarized split of text.

    Raises:
        UserError: it has not.
    """
    if not (Path(data) / f"{split}.bin").is_file():
        raise UserError(f"--gen-subset: found no split {split!r} in {data}; expected {split}.bin there")


def find_device(name: str | None) -> torch.device:
    """The device of that name, tried out; by default a GPU if there is one.

    Raises:
        UserError: there is no such device here.
    """
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(
            f"--device: found {name!r}, which this machine lacks; expected cpu, or cuda with a GPU"
        ) from error
    return device
