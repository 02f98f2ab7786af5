"""Class embeddings for a model that was trained with the ordinary softmax (Choi et al. 2020, App. C).

W is kept. Inside a class the factorized softmax is then equal to the ordinary one, p2(k | c, h) = P(k | h) / Σ_c P, and
only the probability of the class can differ. For every h,

    KL(P ‖ p) = KL(q ‖ p1),        q_c(h) = Σ_{k in c} P(k | h)

so the closest factorized distribution is a multinomial logistic regression of the soft labels q on h: convex in U,
with gradient `(p1 − q)ᵀ H / N`. It is fitted on features of real text. The fit starts from the first-order solution:
around the training frequencies f, log Σ_{k in c} exp(h·w_k) changes with h as h·ū_c does, where ū_c is the mean of the
class's rows of W weighted by f.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.early_gradients import CHUNK_ELEMENTS, working_dtype
from .cross_entropy import class_log_prob, linear, log_sum_exp
from .token_classes import TokenClasses


def class_log_mass(features: Tensor, weight: Tensor, classes: TokenClasses) -> Tensor:
    """log q (N, C), the probability that an ordinary softmax gives to each class, from H (N, D) and W (V, D).

    It is normalized, at least float32, and takes the memory of `CHUNK_ELEMENTS` logits, at least one row of V.
    """
    log_mass = []
    for chunk in features.split(max(1, CHUNK_ELEMENTS // classes.vocabulary)):
        logits = linear(chunk, weight).to(working_dtype(features))  # n x V
        log_mass.append(torch.stack([log_sum_exp(logits, blocks) for blocks in classes.blocks], 1))  # n x C
    return torch.cat(log_mass).log_softmax(1)


def mean_class_embeddings(weight: Tensor, counts: Tensor, classes: TokenClasses) -> Tensor:
    """(C, D), each class's mean row of W (V, D), weighted by training counts (V,), or unweighted where none occurs."""
    share = counts.to(weight)
    mass = share.new_zeros(classes.number).index_add_(0, classes.of_token, share)  # C
    size = share.new_tensor(classes.sizes)
    share = torch.where(mass[classes.of_token] > 0, share / mass[classes.of_token], 1 / size[classes.of_token])
    return weight.new_zeros(classes.number, weight.size(1)).index_add_(0, classes.of_token, share[:, None] * weight)


def fit_class_embeddings(features: Tensor, log_mass: Tensor, start: Tensor) -> Tensor:
    """Fits U (C, D) by L-BFGS, so that p1 is closest to the mass of the classes under the ordinary softmax.

    From H (N, D), N well above D, log q (N, C) of `class_log_mass`, and the U to start from, whose dtype the result
    has.
    """
    dtype = working_dtype(features)
    features, log_q = features.to(dtype), log_mass.to(dtype)
    class_weight = start.to(dtype).clone().requires_grad_()
    optimizer = torch.optim.LBFGS([class_weight], max_iter=200, line_search_fn="strong_wolfe")

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        loss = kl_to_classes(features, class_weight, log_q)
        loss.backward()
        return loss

    optimizer.step(evaluate)
    return class_weight.detach().to(start.dtype)


def kl_to_classes(features: Tensor, class_weight: Tensor, log_mass: Tensor) -> Tensor:
    """KL(q ‖ p1), the mean over positions in nats, for H (N, D), U (C, D) and log q (N, C); differentiable in U."""
    log_p1 = class_log_prob(features, class_weight)
    return F.kl_div(log_p1, log_mass, reduction="batchmean", log_target=True)
