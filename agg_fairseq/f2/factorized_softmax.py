"""The factorized output layer as a module: W, U and the class of each token."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .cross_entropy import factorized_cross_entropy, joint_log_prob
from .token_classes import TokenClasses, check_classes


class TargetLogProb(NamedTuple):
    """The result of `FactorizedSoftmax`, as that of `nn.AdaptiveLogSoftmaxWithLoss`."""

    output: Tensor  # log p of the targets, shaped like them; carries no gradient
    loss: Tensor  # scalar, the mean of −log p in nats


class FactorizedSoftmax(nn.Module):
    """F²-Softmax, `p(k | h) = p1(c(k) | h) · p2(k | c(k), h)`, in the place of
    `nn.AdaptiveLogSoftmaxWithLoss`.

    Its state holds the class of each token beside the weights, and replaces the classes that the
    module was built with.

    Args:
        in_features: D.
        class_of_token: (V,) int64 in [0, C), every class with a token; from `mefmax` of the
            training counts.
        weight: (V, D), an existing parameter to tie the output embedding to; None makes one.

    Examples:
        >>> from agg_fairseq.f2 import mefmax
        >>> counts = torch.tensor([10, 10, 10, 1, 1, 1, 1, 1, 1])
        >>> layer = FactorizedSoftmax(4, mefmax(counts))
        >>> features, target = torch.randn(2, 3, 4), torch.randint(9, (2, 3))
        >>> output, loss = layer(features, target)
        >>> loss.backward()
        >>> layer.log_prob(features).exp().sum(-1).allclose(torch.ones(2, 3))
        True

    Reference: Choi et al. (2020), Eqs. 2–4 and 7.
    """

    class_of_token: Tensor  # (V,) int64

    def __init__(
        self, in_features: int, class_of_token: Tensor, weight: nn.Parameter | None = None
    ) -> None:
        super().__init__()
        classes = TokenClasses.of(class_of_token)
        if weight is None:
            weight = nn.Parameter(_normal(classes.vocabulary, in_features))
        self.weight = weight
        self.class_weight = nn.Parameter(_normal(classes.number, in_features))
        check_classes(self.weight, self.class_weight, classes)
        self.register_buffer("class_of_token", class_of_token.clone())
        self._classes: TokenClasses | None = classes

    @property
    def classes(self) -> TokenClasses:
        """The classes, on the device of the weights."""
        if self._classes is None or self._classes.class_ids.device != self.class_of_token.device:
            self._classes = TokenClasses.of(self.class_of_token)
        return self._classes

    def forward(self, input: Tensor, target: Tensor) -> TargetLogProb:
        """Log-probabilities of the targets, and their mean negative, at about 1/C of the full
        softmax's cost.

        Args:
            input: (..., D) H, features.
            target: (...) y, int64 in [0, V), or −100, where the log-probability is 0 and which the
                mean leaves out.
        """
        output = factorized_cross_entropy(
            input, self.weight, self.class_weight, target, self.classes
        )
        return TargetLogProb(-output.nll, output.loss / (target != -100).sum())

    def log_prob(self, input: Tensor) -> Tensor:
        """The joint log-probability of every token: (..., D) to (..., V), normalized."""
        return joint_log_prob(input, self.weight, self.class_weight, self.classes)

    def assign(self, class_of_token: Tensor) -> None:
        """Replaces the classes (V,). U keeps its values if their number stays the same, else it is
        a new parameter.

        So do this, and load a state with another number of classes, before the optimizer is built
        and the model is wrapped for several workers.
        """
        classes = TokenClasses.of(class_of_token)
        self.class_of_token.copy_(class_of_token)
        self._classes = None
        if classes.number != len(self.class_weight):
            # Not the same parameter with other data: autograd would sum its gradient to the size
            # that it remembers.
            fresh = _normal(classes.number, self.class_weight.size(1))
            self.class_weight = nn.Parameter(fresh.to(self.class_weight))

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Saves the classes as float32 (exact up to 2^24 classes): tools that average states
        average every entry."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}class_of_token"] = self.class_of_token.float()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Loads the classes before the weights, whose number of rows depends on them."""
        key = f"{prefix}class_of_token"
        saved = state_dict.get(key)
        if saved is not None and saved.shape == self.class_of_token.shape:
            state_dict[key] = saved.double().round().long().to(self.class_of_token.device)
            if not torch.equal(state_dict[key], self.class_of_token):
                self.assign(state_dict[key])
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _normal(rows: int, dimension: int) -> Tensor:
    """Drawn as fairseq initializes an output embedding: a standard deviation of 1/√D."""
    return torch.empty(rows, dimension).normal_(0, dimension**-0.5)
