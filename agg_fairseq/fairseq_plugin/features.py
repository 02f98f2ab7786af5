"""The features of a fairseq model, where what it returns is what its output layer makes of them:
compared with what it returned, and never concluded from its class."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

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
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # it wants logits of all positions
        return None
    if len(kept) != 1:
        return None
    with torch.no_grad():
        given = log_probs(_few(kept[0]))
        returned = model.get_normalized_probs(output, log_probs=True)
    tolerance = max(1e-5, 8 * torch.finfo(kept[0].dtype).eps)
    is_plain = given.shape == returned.shape and torch.allclose(
        given.float(), returned.float(), tolerance, tolerance
    )
    return kept[0] if is_plain else None


@torch.no_grad()
def is_plain(model: Any, net_input: dict[str, Any], log_probs: Callable[[Tensor], Tensor]) -> bool:
    """Asks `features_if_plain`, without a trace in the model's buffers and in random numbers."""
    buffers = [
        (module._buffers, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        features = features_if_plain(model, net_input, log_probs)
    for holder, name, buffer, before in buffers:
        holder[name] = buffer.copy_(before)  # positions of a longer batch are another tensor
    return features is not None


@contextmanager
def replaced_output_layer(decoder: Any, function: Callable[[Tensor], Any]) -> Iterator[None]:
    """Lets a decoder call `function` as its `output_layer`, if it has one."""
    if not hasattr(decoder, "output_layer"):
        yield
        return
    before = vars(decoder).get("output_layer")
    decoder.output_layer = function
    try:
        yield
    finally:
        del decoder.output_layer  # so that the method of the class is found again
        if before is not None:
            decoder.output_layer = before


def _few(features: Tensor) -> Tensor:
    """The first positions of each sequence."""
    return features[:, : max(1, COMPARED // len(features))]
