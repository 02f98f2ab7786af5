"""Continuation of prefixes by a fairseq language model, greedily or by sampling."""

import inspect

import torch
from torch import Tensor, nn


@torch.no_grad()
def continuation(
    model: nn.Module,
    prefixes: Tensor,
    length: int,
    *,
    lengths: Tensor | None = None,
    draws: Tensor | None = None,
    topk: int | None = None,
    forbidden: tuple[int, ...] = (),
) -> Tensor:
    """Continues each prefix (B, P), P >= 1, token by token, by L = `length` tokens: (B, L) int64.

    The probabilities are those of the model's `get_normalized_probs`. The model is left in the
    mode, training or evaluation, that it was in.

    Args:
        lengths: (B,) of the prefixes, on the CPU, if some are shorter than P; what follows these
            does not matter. A shorter one is continued while a longer one is still read, so that
            no model meets padding.
        draws: (B, L) random numbers in [0, 1), by which tokens are drawn; None takes the likeliest.
        topk: K >= 1 draws from the K likeliest tokens (Fan et al. 2018); None: from all.
        forbidden: tokens that are never chosen (padding).
    """
    was_training = model.training
    model.eval()
    known, state = prefixes.size(1), {}  # the state is filled by the decoder
    tokens = torch.cat([prefixes, prefixes.new_zeros(len(prefixes), length)], dim=1)  # B x (P + L)
    shortest = known
    if lengths is not None:
        shortest, lengths = int(lengths.min()), lengths.to(prefixes.device)
    takes_features_only = "features_only" in inspect.signature(model.decoder.forward).parameters
    for step in range(1, shortest):  # without the output layer, where the decoder offers that
        options = {"features_only": True} if takes_features_only else {}
        model.decoder(tokens[:, :step], incremental_state=state, **options)
    for step in range(shortest, known + length):
        output, *more = model.decoder(tokens[:, :step], incremental_state=state)
        last = output[:, -1:], *more  # B x 1 x V, or features for an adaptive softmax
        log_probs = model.get_normalized_probs(last, log_probs=True)[:, -1]  # B x V
        log_probs[:, list(forbidden)] = -torch.inf
        if draws is None:
            chosen = log_probs.argmax(1)
        elif lengths is None:
            chosen = _sample(log_probs, topk, draws[:, step - known])
        else:
            at = (step - lengths).clamp(0, length - 1)[:, None]
            chosen = _sample(log_probs, topk, draws.gather(1, at).squeeze(1))
        tokens[:, step] = (
            chosen if lengths is None else chosen.where(step >= lengths, tokens[:, step])
        )
    model.train(was_training)
    if lengths is None:
        return tokens[:, known:]
    return tokens.gather(1, lengths[:, None] + torch.arange(length, device=tokens.device))


def _sample(logits: Tensor, topk: int | None, draw: Tensor) -> Tensor:
    """(B,) tokens, by where `draw` (B,) in [0, 1) falls in the sum of the likeliest ones'
    probabilities."""
    values, tokens = logits.topk(min(topk or logits.size(1), logits.size(1)), dim=1)  # B x K
    # whole numbers, whose sums are the same in any order
    shares = (values.double().softmax(1) * 2**52).long()
    ends = shares.cumsum(1)
    # never one of probability 0
    chosen = (ends <= draw[:, None].double() * ends[:, -1:]).sum(1, keepdim=True)
    return tokens.gather(1, chosen).squeeze(1)
