"""Continuation of prefixes by a fairseq language model, greedily or by top-k sampling."""

import inspect

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
    """Continues each prefix (B, P), P >= 1, token by token, by L = `length` tokens: (B, L) int64.

    The decoder may give logits or log-probabilities. The model is left in the mode, training or
    evaluation, that it was in.

    Args:
        topk: None takes the likeliest token; K in [1, V] draws from the K likeliest, whose
            probabilities are made to add up to 1 (Fan et al. 2018).
        generator: of the CPU, so that a seed means the same on all devices; None is torch's own.
        forbidden: tokens that are never chosen (padding).
    """
    was_training = model.training
    model.eval()
    known, state = prefixes.size(1), {}  # the state is filled by the decoder
    tokens = torch.cat([prefixes, prefixes.new_zeros(len(prefixes), length)], dim=1)  # B x (P + L)
    if topk is not None:  # all at once, row by row: how texts are batched changes nothing
        draws = torch.rand(len(prefixes), length, generator=generator).to(prefixes.device)
    takes_features_only = "features_only" in inspect.signature(model.decoder.forward).parameters
    for step in range(1, known):  # without the output layer, where the decoder offers that
        options = {"features_only": True} if takes_features_only else {}
        model.decoder(tokens[:, :step], incremental_state=state, **options)
    adaptive = getattr(model.decoder, "adaptive_softmax", None)
    for step in range(known, known + length):
        output = model.decoder(tokens[:, :step], incremental_state=state)[0][:, -1:]  # B x 1 x V
        if adaptive is not None:  # such a decoder gives features
            output = adaptive.get_log_prob(output, None)
        logits = output[:, -1]  # B x V
        logits[:, list(forbidden)] = -torch.inf
        tokens[:, step] = (
            logits.argmax(1) if topk is None else _sample(logits, topk, draws[:, step - known])
        )
    model.train(was_training)
    return tokens[:, known:]


def _sample(logits: Tensor, topk: int, draw: Tensor) -> Tensor:
    """(B,) tokens, by where `draw` (B,) in [0, 1) falls in the sum of the likeliest ones'
    probabilities."""
    values, tokens = logits.topk(min(topk, logits.size(1)), dim=1)  # B x K
    # whole numbers, whose sums are the same in any order
    ends = (values.double().softmax(1) * 2**52).long().cumsum(1)
    # never one of probability 0
    chosen = (ends <= draw[:, None].double() * ends[:, -1:]).sum(1, keepdim=True)
    return tokens.gather(1, chosen).squeeze(1)
