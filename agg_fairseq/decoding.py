"""Continuation of prefixes by a fairseq language model, greedily or by top-k sampling."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def continuation(
    model: nn.Module,
    prefixes: Tensor,
    length: int,
    *,
    topk: int | None = None,
    generator: torch.Generator | None = None,
    forbidden: tuple[int, ...] = (),
) -> Tensor:
    """Continues each prefix token by token, without dropout.

    With the decoder's incremental state: prefix and continuation take one step of the model each. The decoder may
    give logits or log-probabilities.

    Args:
        model: a fairseq language model; left in the mode, training or not, that it was in.
        prefixes: (B, P) int64, P >= 1.
        length: L, how many tokens to add.
        topk: None takes the likeliest token; K in [1, V] draws from the K likeliest by their probabilities, which are
            made to add up to 1 (Fan et al. 2018).
        generator: of the CPU, whatever the device of the model, so that a seed means the same on all; None is torch's
            own. Greedy continuation takes no random number.
        forbidden: tokens that are never chosen (padding).

    Returns:
        (B, L) int64.
    """
    was_training = model.training
    model.eval()
    known, state = prefixes.size(1), {}  # the state is filled by the decoder
    tokens = torch.cat([prefixes, prefixes.new_zeros(len(prefixes), length)], dim=1)  # B x (P + L)
    if topk is not None:  # all at once, row by row: how texts are batched changes nothing
        draws = torch.rand(len(prefixes), length, generator=generator).to(prefixes.device)
    for step in range(1, known):
        _advance(model.decoder, tokens[:, :step], state)
    for step in range(known, known + length):
        logits = _last_logits(model.decoder, tokens[:, :step], state)  # B x V
        logits[:, list(forbidden)] = -torch.inf
        tokens[:, step] = logits.argmax(1) if topk is None else _sample(logits, topk, draws[:, step - known])
    model.train(was_training)
    return tokens[:, known:]


def learned_positions(decoder: nn.Module) -> int | None:
    """The number of positions that a decoder has embeddings for, its longest text; None if it has no such limit."""
    from fairseq.modules import LearnedPositionalEmbedding

    positions = getattr(decoder, "embed_positions", None)
    return positions.max_positions if isinstance(positions, LearnedPositionalEmbedding) else None


def _advance(decoder: nn.Module, tokens: Tensor, state: dict[str, Any]) -> None:
    """One step of the incremental state; without the output layer, where the decoder offers that."""
    takes_features_only = "features_only" in inspect.signature(decoder.forward).parameters
    decoder(tokens, incremental_state=state, **({"features_only": True} if takes_features_only else {}))


def _last_logits(decoder: nn.Module, tokens: Tensor, state: dict[str, Any]) -> Tensor:
    output = decoder(tokens, incremental_state=state)[0][:, -1:]  # B x 1 x V
    adaptive = getattr(decoder, "adaptive_softmax", None)
    if adaptive is not None:  # such a decoder gives features
        output = adaptive.get_log_prob(output, None)
    return output[:, -1]


def _sample(logits: Tensor, topk: int, draw: Tensor) -> Tensor:
    """(B,) tokens: where `draw`, (B,) in [0, 1), falls in the running sum of the likeliest tokens' probabilities."""
    values, tokens = logits.topk(topk, dim=1)  # B x K
    ends = values.float().softmax(1).cumsum(1)
    chosen = (ends <= draw[:, None] * ends[:, -1:]).sum(1, keepdim=True)  # never one of probability 0
    return tokens.gather(1, chosen).squeeze(1)
