"""The features of a fairseq model, where what it returns is what its output layer makes of them:
compared with what it returned, and never concluded from its class."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .output_layer import replaced_output_layer

COMPARED = 16  # positions of a batch


def features_if_plain(
    model: Any, net_input: dict[str, Any], log_probs: Callable[[Tensor], Tensor]
) -> Tensor | None:
    """Runs a model once, of which the decoder's `output_layer` sees a few positions: the features H
    (B, T, D), if `log_probs` of those positions are what `get_normalized_probs` returns for them;
    None if not, or if the decoder has no such method."""
    kept: list[Tensor] = []
    layer = getattr(model.decoder, "output_layer", None)

    def few_positions(features: Tensor) -> Tensor:
        kept.append(features)
        return layer(_few(features))

    try:
        with replaced_output_layer(model.decoder, few_positions):
            output = model(**net_input)
    except RuntimeError:  # it wants logits of all positions
        return None
    if len(kept) != 1:
        return None
    with torch.no_grad():
        given = log_probs(_few(kept[0]))
        returned = model.get_normalized_probs(output, log_probs=True)
    is_plain = given.shape == returned.shape and torch.allclose(given, returned, 1e-5, 1e-5)
    return kept[0] if is_plain else None


def _few(features: Tensor) -> Tensor:
    """The first positions of each sequence."""
    return features[:, : max(1, COMPARED // len(features))]
