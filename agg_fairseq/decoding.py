"""Greedy continuation of a prefix by a fairseq language model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def greedy_continuation(model: nn.Module, prefixes: Tensor, length: int, *, forbidden: tuple[int, ...] = ()) -> Tensor:
    """What a language model finds likeliest after each prefix, token by token, without dropout.

    With the decoder's incremental state: prefix and continuation take one step of the model each.

    Args:
        model: a fairseq language model; left in the mode, training or not, that it was in.
        prefixes: (B, P) int64, P >= 1.
        length: L, how many tokens to add.
        forbidden: tokens that are never chosen (padding).

    Returns:
        (B, L) int64.
    """
    was_training = model.training
    model.eval()
    tokens, state = prefixes, {}  # the state is filled by the decoder
    for step in range(1, prefixes.size(1) + length):
        logits = _last_logits(model.decoder, tokens[:, :step], state)  # B x V
        if step >= prefixes.size(1):
            logits[:, list(forbidden)] = -torch.inf
            tokens = torch.cat([tokens, logits.argmax(1, keepdim=True)], dim=1)
    model.train(was_training)
    return tokens[:, prefixes.size(1) :]


def _last_logits(decoder: nn.Module, tokens: Tensor, state: dict[str, Any]) -> Tensor:
    return decoder(tokens, incremental_state=state)[0][:, -1]
