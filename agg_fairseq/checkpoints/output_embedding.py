"""The matrix that a model's logits are formed with."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from ..errors import UserError
from ..metrics import Embeddings


@dataclass(frozen=True)
class OutputEmbedding:
    """The matrix that a model's logits are formed with."""

    name: str  # of the parameter in the file
    tied: bool | None  # whether it is the input embedding too; None where that is not known
    saved: Tensor  # W (V, D) in the dtype of the file, all rows; finite
    has_log_unigram: bool = False  # whether the model adds a log-unigram bias to the logits `H Wᵀ`

    @property
    def weight(self) -> Tensor:
        """W (V, D) in float32; a copy, if saved in another dtype."""
        return self.saved.float()

    @cached_property
    def embeddings(self) -> Embeddings:
        """W with what its measures have in common, computed once; in the dtype of the file, of
        which float32 would be a copy."""
        return Embeddings(self.weight if self.saved.dtype == torch.float64 else self.saved)

    @property
    def description(self) -> str:
        """The name, tie and log-unigram bias, as in signatures."""
        tied = {True: "(tied)", False: "", None: "(chosen)"}[self.tied]
        return f"{self.name}{tied}{'+log-unigram' if self.has_log_unigram else ''}"


def check_matrix(path: str | Path, name: str, value: Tensor) -> Tensor:
    """A parameter; UserError unless it is a matrix of finite numbers, not all of them 0."""
    if not value.is_floating_point() or value.dim() != 2 or not value.numel():
        raise UserError(
            f"{path}: found {value.dtype} of shape {tuple(value.shape)} as {name}; expected a matrix "
            "of floating-point numbers with a row or more"
        )
    # as it is used: a large float64 is infinite there
    extremes = torch.tensor([rows.float().aminmax() for rows in value.detach().split(8192)])
    check_finite(path, {name: extremes})
    if not extremes.any():
        raise UserError(f"{path}: found only zeros in {name}; expected a trained model")
    return value


def check_finite(path: str | Path, parameters: Mapping[str, Tensor]) -> None:
    """Raises UserError if one of the parameters, by their names, has an infinity or NaN."""
    bad = next((name for name, value in parameters.items() if not value.isfinite().all()), None)
    if bad is not None:
        raise UserError(
            f"{path}: found an infinity or NaN in {bad}: a diverged run; take an earlier checkpoint"
        )
