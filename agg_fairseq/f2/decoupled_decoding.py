"""Decoupled decoding: the class is chosen first, and only its tokens can follow (Choi et al. 2020,
Sec. 3.4)."""

import torch
from torch import Tensor

from .cross_entropy import class_log_prob, linear
from .token_classes import TokenClasses, check_classes

DECODINGS = ("joint", "greedy-class", "sample-class")
"""Ways to choose the next token: from the joint distribution, or its class first."""

OUTSIDE_NATS = 25.0
"""All tokens outside the chosen class together keep a probability of e^-25, 1e-11."""
LEAST_CLASS_NATS = 7.0
"""A class that is not chosen keeps at least e^-7 of that. With 50,000 tokens the smallest
probability is then e^-43, which float32 can still represent after a division by a temperature of
0.5."""


def decoupled_log_prob(
    features: Tensor, weight: Tensor, class_weight: Tensor, classes: TokenClasses, chosen: Tensor
) -> Tensor:
    """log p' of every token: log p2 inside the chosen class, and almost no probability outside (Eq.
    7).

        p'(k) = p2(k | c)                       if k is in the chosen class c
              = e^-25 p1(c(k)) / |c(k)|         otherwise

    The paper has 0 outside. The remainder is drawn once in 10^11 samples and wins no search, but
    defines what a generator does besides choosing: a forced prefix, the end of the sentence at the
    length limit, or a class all of whose tokens are forbidden.

    Args:
        features: this and the next three as of `joint_log_prob`.
        chosen: (...) int64 in [0, C), the class of each position; see `choose_class`.

    Returns:
        (..., V), at least float32, finite everywhere; carries no gradient. It costs the products
        with U and with the chosen class's rows of W, and writing V values.
    """
    check_classes(weight, class_weight, classes)
    with torch.no_grad():
        shape = (*features.shape[:-1], classes.vocabulary)
        features, chosen = features.reshape(-1, features.size(-1)), chosen.reshape(-1)
        log_p1 = class_log_prob(features, class_weight)  # N x C
        outside = log_p1.clamp(min=-LEAST_CLASS_NATS) - classes.sizes.log() - OUTSIDE_NATS
        log_probs = classes.spread(outside)  # N x V

        # All logits are formed on a GPU: to learn which classes were chosen, its host would wait.
        if features.is_cuda:
            is_inside = classes.class_ids == chosen[:, None]  # N x V
            token_log_probs = linear(features, weight).to(log_probs.dtype)
            token_log_probs = token_log_probs.masked_fill_(~is_inside, -torch.inf).log_softmax(1)
            return torch.where(is_inside, token_log_probs, log_probs).view(shape)
        for number, parts in enumerate(classes.parts):
            rows = (chosen == number).nonzero().squeeze(1)
            if len(rows):
                h, logits = features[rows], []
                for part in parts:
                    w = weight[part] if isinstance(part, slice) else weight.index_select(0, part)
                    logits.append(linear(h, w))
                inside = torch.log_softmax(torch.cat(logits, 1).to(log_probs.dtype), 1)
                sizes = [part_log_probs.size(1) for part_log_probs in logits]
                for part, part_log_probs in zip(parts, inside.split(sizes, 1), strict=True):
                    at = (rows, part) if isinstance(part, slice) else (rows[:, None], part)
                    log_probs[at] = part_log_probs
        return log_probs.view(shape)


def choose_class(features: Tensor, class_weight: Tensor, *, sample: bool) -> Tensor:
    """The class (...) of the next token from H (..., D) and U (C, D): the most probable, or one
    drawn from p1."""
    log_p1 = class_log_prob(features, class_weight)
    if not sample:
        return log_p1.argmax(-1)
    drawn = torch.multinomial(log_p1.exp().reshape(-1, log_p1.size(-1)), 1)
    return drawn.view(log_p1.shape[:-1])
