"""The continuous cache: words that followed similar features earlier in the text become more
probable."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class CacheOptions(NamedTuple):
    """Options of `ContinuousCache`; the defaults are those of the authors of AWD-LSTM for
    WikiText-2, of size 3,785."""

    size: int  # number of positions that are remembered; at least 1
    # flatness of the distribution over them; at least 0, where 0 weighs all equally
    theta: float = 0.662
    weight: float = 0.1279  # λ, the share of the cache in the mixture, in [0, 1]


class ContinuousCache:
    r"""Mixes the probabilities of a language model with those of the last positions of the text.

    With features h_t, from which the model predicts the target y_t, and M_t the last `size`
    positions before t (Grave, Joulin & Usunier, ICLR 2017, Eq. 2 and the linear interpolation of
    Sec. 3):

    .. math:: p_\text{cache}(w \mid t) \propto \sum_{i \in M_t} 1\{w = y_i\} \exp(\theta\, h_t \cdot
        h_i), \qquad p(w \mid t) = (1 - \lambda)\, p_\text{model}(w \mid t) + \lambda\,
        p_\text{cache}(w \mid t)

    At the first position of a text, M_t is empty, and p is that of the model. The cost per position
    is that of `size` inner products.

    Examples:
        >>> cache = ContinuousCache(CacheOptions(size=100, theta=1.0, weight=0.5))
        >>> features, model = torch.eye(2), torch.full((2, 4), 0.25).log()
        >>> cache.add(features, torch.tensor([3, 1]), model).exp()  # at the second position, token 3 is in the cache
        tensor([[0.2500, 0.2500, 0.2500, 0.2500],
                [0.1250, 0.1250, 0.1250, 0.6250]])
    """

    def __init__(self, options: CacheOptions) -> None:
        if not 1 <= options.size < 2**31:
            raise ValueError(f"cache size: expected 1 to 2^31 - 1 positions, got {options.size}")
        if not 0 <= options.theta < math.inf:
            raise ValueError(f"cache theta: expected a number of at least 0, got {options.theta}")
        if not 0 <= options.weight <= 1:
            raise ValueError(f"cache lambda: expected a share in [0, 1], got {options.weight}")
        self.options = options
        self._features: Tensor | None = None  # M x D, the oldest first
        self._targets: Tensor | None = None  # M

    def add(self, features: Tensor, targets: Tensor, log_probs: Tensor) -> Tensor:
        """Log-probabilities (N, V) of the mixture at the next positions of the text, which are then
        remembered.

        Args:
            features: (N, D) h, what the output layer multiplies, in the order of the text.
            targets: (N,) y.
            log_probs: (N, V) of the model.
        """
        size, theta, weight = self.options
        if self._features is None:
            self._features, self._targets = features[:0], targets[:0]
        known = len(self._targets)
        all_features = torch.cat([self._features, features])  # (M + N) x D
        all_targets = torch.cat([self._targets, targets])
        scores = theta * (features.float() @ all_features.float().t())  # N x (M + N)
        # Position n of these is entry M + n, and remembers the entries M + n − size to M + n − 1.
        here = known + torch.arange(len(features), device=features.device)[:, None]
        entries = torch.arange(len(all_targets), device=features.device)
        remembered = (entries < here) & (entries >= here - size)
        # a row of −∞: nothing yet
        attention = scores.masked_fill(~remembered, -math.inf).softmax(1).nan_to_num(0)
        cached = torch.zeros_like(log_probs, dtype=torch.float32)
        cached.index_add_(1, all_targets, attention)
        log_model, log_cache = torch.tensor([1 - weight, weight]).log().tolist()  # one may be −∞
        mixture = torch.logaddexp(log_probs.float() + log_model, cached.log() + log_cache)
        self._features, self._targets = all_features[-size:], all_targets[-size:]
        return torch.where(remembered.any(1, keepdim=True), mixture, log_probs.float())
