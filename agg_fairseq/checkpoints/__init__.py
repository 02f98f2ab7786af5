"""Saved models, opened once and safely: checkpoints of fairseq-train, and models of Hugging Face
transformers."""

from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from ..names import unique_names
from .fairseq_checkpoint import Checkpoint, checkpoint_file
from .output_embedding import OutputEmbedding
from .transformers_model import PretrainedModel, is_pretrained, weights_file

__all__ = ["open_models", "Checkpoint", "PretrainedModel", "OutputEmbedding", "EmbeddingSource"]

EmbeddingSource = Checkpoint | PretrainedModel  # both have `path` and `output_embedding`


def open_models(
    paths: Sequence[str | Path], names: Sequence[str] | None = None, matrix: str | None = None
) -> dict[str, EmbeddingSource]:
    """Models by the names of their rows in a table.

    Args:
        paths: checkpoints of fairseq-train, or folders of its runs; folders of transformers, files
            of safetensors, or indices of several such files.
        names: one each; by default as of `unique_names`.
        matrix: of models of transformers, the parameter that is measured instead of the output
            embedding.
    """
    kinds = [is_pretrained(Path(path)) for path in paths]
    files = []
    for path, pretrained in zip(paths, kinds, strict=True):
        files.append(weights_file(Path(path)) if pretrained else checkpoint_file(path))
    if matrix is not None and not all(kinds):
        raise UserError(
            f"--matrix: found {files[kinds.index(False)]}, of fairseq-train; expected "
            "transformers models"
        )
    models: dict[str, EmbeddingSource] = {}
    for name, file, pretrained in zip(unique_names(files, names), files, kinds, strict=True):
        if pretrained:
            models[name] = PretrainedModel(file, matrix)
        else:
            models[name] = Checkpoint(file, training_state=False)
    return models
