"""Saved models of fairseq-train and of transformers, opened once and safely."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import UserError
from ..names import unique_names
from .fairseq_checkpoint import Checkpoint
from .output_embedding import OutputEmbedding
from .transformers_model import PretrainedModel, is_pretrained

__all__ = [
    "open_models",
    "Checkpoint",
    "PretrainedModel",
    "OutputEmbedding",
    "EmbeddingSource",
    "Models",
]

EmbeddingSource = Checkpoint | PretrainedModel  # both have `path` and `output_embedding`
Models = Mapping[str, EmbeddingSource]  # by the names of their rows in a table


def open_models(
    paths: Sequence[str | Path], names: Sequence[str] | None = None, matrix: str | None = None
) -> dict[str, EmbeddingSource]:
    """Models by the names of their rows in a table.

    Args:
        paths: checkpoints of fairseq-train, or folders of its runs; folders of transformers, files
            of safetensors, or indices of several such files.
        names: one each; None: those of `unique_names`.
        matrix: parameter of models of transformers to measure instead of the output embedding.
    """
    models: list[EmbeddingSource] = []
    for path in map(Path, paths):
        if is_pretrained(path):
            models.append(PretrainedModel(path, matrix))
        elif matrix is None:
            models.append(Checkpoint(path))
        else:
            raise UserError(
                f"--matrix: found {path}, of fairseq-train; expected transformers models"
            )
    names = unique_names([model.path for model in models], names)
    return dict(zip(names, models, strict=True))
