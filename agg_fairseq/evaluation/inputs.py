"""Checks of what is evaluated: models of one vocabulary, a device that works."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from ..checkpoints import EmbeddingSource
from ..checkpoints.fairseq_checkpoint import Checkpoint
from ..data.binarized import training_pair
from ..data.tokenizer_vocabulary import TokenizerVocabulary
from ..data.vocabulary import GROUPINGS, BinarizedVocabulary, Vocabulary
from ..errors import UserError


def load_vocabulary(checkpoints: Mapping[str, Checkpoint], data: str | Path) -> BinarizedVocabulary:
    """The vocabulary of models, from the folder with the training split; UserError unless all are
    over it, and of one task and languages."""
    # by source and target language, None for language models
    first: dict[tuple[str, str] | None, Checkpoint] = {}
    for checkpoint in checkpoints.values():
        pair = checkpoint.languages
        if pair is not None and not all(pair):
            pair = training_pair(data, *pair)
        first.setdefault(pair, checkpoint)
    if len(first) > 1:
        kinds = []
        for pair, model in first.items():
            kinds.append(f"{model} ({'-'.join(pair) if pair else 'a language model'})")
        raise UserError(
            f"found {' and '.join(kinds)}; expected models of one task and its languages"
        )
    upsampled = {one.task_options.get("upsample_primary") or 1 for one in checkpoints.values()}
    if len(upsampled) > 1:
        raise UserError(
            f"found models trained with --upsample-primary {sorted(upsampled)}; measure them one at "
            "a time"
        )
    vocabulary = BinarizedVocabulary.load(data, next(iter(first)), upsample_primary=upsampled.pop())
    for checkpoint in checkpoints.values():
        checkpoint.check_vocabulary(len(vocabulary.tokens), data)
    return vocabulary


def load_embedding_vocabulary(
    models: Mapping[str, EmbeddingSource],
    data: str | Path | None,
    train_text: str | Path | None = None,
) -> Vocabulary:
    """The vocabulary of models whose output embeddings are all over it: with `data`, that of
    `load_vocabulary`; else that of their tokenizer, with counts if there is a `train_text`."""
    first = next(iter(models.values()))
    for model in models.values():
        model.output_embedding  # noqa: B018 — a file that is no model is refused before the data is counted
        if type(model) is not type(first):
            raise UserError(
                f"found {first} and {model}, of fairseq and of transformers; expected one vocabulary"
            )
    is_of_fairseq = isinstance(first, Checkpoint)
    if (train_text if is_of_fairseq else data) is not None:
        raise UserError(
            "--data is for models of fairseq, --train-text for models of transformers; drop one"
        )
    if is_of_fairseq:
        if data is None:
            raise UserError(
                "--data: found none; expected the data folder that the model was trained with"
            )
        return load_vocabulary(models, data)
    vocabulary = None
    for model in models.values():
        path = model.path.with_name("tokenizer.json")
        other = TokenizerVocabulary.load(path, len(model.output_embedding.saved))
        vocabulary = vocabulary or other
        if other.tokens != vocabulary.tokens:
            raise UserError(
                f"{model}: found another vocabulary than in {first}; measure them one at a time"
            )
    return vocabulary if train_text is None else vocabulary.counted_in(train_text)


def check_row_names(names: Iterable[str], *taken: str) -> None:
    """Checks that nothing that is measured has the name of another row of the table."""
    clash = next((name for name in names if name in taken), None)
    if clash is not None:
        raise UserError(
            f"--name: found {clash!r}, a row of its own in the table; give another name"
        )


def matrix_setting(models: Mapping[str, EmbeddingSource]) -> str:
    """The output embeddings, each once, as a setting of a result."""
    return ",".join(dict.fromkeys(model.output_embedding.description for model in models.values()))


def frequency_settings(
    data: str | Path | None, train_text: str | Path | None, groups: str
) -> dict[str, str | None]:
    """Settings of a result that say how groups were formed, if there are any."""
    if data is None and train_text is None:
        return {}
    counted_in = None if train_text is None else Path(train_text).name
    return {"groups": GROUPINGS[groups], "counted-in": counted_in}


def find_device(name: str | None) -> torch.device:
    """The device of that name, tried out; by default a GPU if there is one."""
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.zeros(1, device=device).item()
    return device
