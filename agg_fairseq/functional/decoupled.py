"""Decoupled decoding: the class is chosen first, and only its tokens can follow (Choi et al. 2020, Sec. 3.4)."""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import check_classes
from .factorized_softmax import class_log_prob, linear
from .token_classes import Block, TokenClasses

DECODINGS = ("joint", "greedy-class", "sample-class")
"""How the next token may be found: from the joint distribution, or with its class chosen first."""

OUTSIDE = 25.0
"""The tokens outside the chosen class keep a probability of e^-25 together: 1e-11."""
LEAST_CLASS = 7.0
"""A class that is not chosen counts with at least e^-7 of that. With 50,000 tokens the least probability is then e^-43,
so that float32 bears a temperature of 0.5."""


def decoupled_log_prob(
    features: Tensor, weight: Tensor, class_weight: Tensor, classes: TokenClasses, chosen: Tensor
) -> Tensor:
    """log p' of every token: that inside the chosen class, and next to nothing outside (Eq. 7).

        p'(k) = p2(k | c)                       if k is in the chosen class c
              = e^-25 p1(c(k)) / |c(k)|         otherwise

    The paper has 0 outside. The remainder shows in one of 10^11 samples, and wins no search; but it keeps what a
    generator does beside choosing well defined: a prefix that is forced, the end of the sentence at the length limit,
    or a class all of whose tokens are forbidden. It is ordered by class only, so that no other logits are needed.

    Args:
        features: (..., D) H.
        weight: (V, D) W.
        class_weight: (C, D) U.
        classes: the class of each token.
        chosen: (...) int64 in [0, C), the class of each position; see `choose_class`.

    Returns:
        (..., V), in float32 (float64 for float64 features), finite everywhere; carries no gradient.

    Raises:
        ValueError: a size does not fit.

    Cost: at each position the products with U and with the chosen class's rows of W, and writing V values. Where the
    order of the dictionary scatters the chosen classes, the product with all of W.
    """
    check_classes(weight, class_weight, classes)
    if chosen.shape != features.shape[:-1]:
        raise ValueError(
            f"decoupled_log_prob: expected chosen of shape {tuple(features.shape[:-1])}, got {tuple(chosen.shape)}"
        )
    if chosen.device.type == "cpu" and chosen.numel() and not 0 <= chosen.min() <= chosen.max() < classes.number:
        raise ValueError(
            f"decoupled_log_prob: expected chosen classes in [0, {classes.number}), got {int(chosen.min())} to "
            f"{int(chosen.max())}"
        )
    with torch.no_grad():
        shape = (*features.shape[:-1], classes.vocabulary)
        features, chosen = features.reshape(-1, features.size(-1)), chosen.reshape(-1)
        log_probs = _outside(class_log_prob(features, class_weight), classes)  # N x V
        numbers = chosen.unique().tolist()
        logits = linear(features, weight) if _are_scattered(classes, numbers) else None  # N x V
        for number in numbers:
            rows = (chosen == number).nonzero().squeeze(1)  # n
            blocks = classes.blocks[number]
            if logits is None:
                inside = [linear(features[rows], weight[block]) for block in blocks]
            else:
                inside = [logits[rows][:, block] for block in blocks]
            _put_inside(log_probs, rows, blocks, inside)
        return log_probs.view(shape)


def choose_class(features: Tensor, class_weight: Tensor, *, sample: bool) -> Tensor:
    """The class of the next token, the likeliest or one drawn from p1.

    Args:
        features: (..., D) H.
        class_weight: (C, D) U.
        sample: draw, with torch's global generator.

    Returns:
        (...) int64 in [0, C).
    """
    log_p1 = class_log_prob(features, class_weight)
    if not sample:
        return log_p1.argmax(-1)
    drawn = torch.multinomial(log_p1.exp().reshape(-1, log_p1.size(-1)), 1)
    return drawn.view(log_p1.shape[:-1])


def _outside(log_p1: Tensor, classes: TokenClasses) -> Tensor:
    """What every token would have outside the chosen class, (N, V)."""
    sizes = log_p1.new_tensor(classes.sizes)  # C
    per_class = log_p1.clamp(min=-LEAST_CLASS) - sizes.log() - OUTSIDE  # N x C
    return per_class.index_select(1, classes.of_token)


def _are_scattered(classes: TokenClasses, numbers: list[int]) -> bool:
    """Would picking the rows of W copy so much of it that one product over all tokens is cheaper?"""
    picked = sum(len(block) for n in numbers for block in classes.blocks[n] if not isinstance(block, slice))
    return picked > classes.vocabulary // 4


def _put_inside(log_probs: Tensor, rows: Tensor, blocks: tuple[Block, ...], logits: list[Tensor]) -> None:
    """log p2 of the chosen class at some positions (n,), of its logits block by block, (n, tokens) each."""
    logits = [part.to(log_probs.dtype) for part in logits]
    normalizer = torch.logsumexp(torch.cat(logits, 1), 1, keepdim=True)  # n x 1
    for block, part in zip(blocks, logits, strict=True):
        columns = torch.arange(block.start, block.stop, device=rows.device) if isinstance(block, slice) else block
        log_probs[rows[:, None], columns] = part - normalizer
