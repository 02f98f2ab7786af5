"""An output layer with a log-unigram bias, for any training loop."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..functional import log_unigram, whole_counts


class UnigramLinear(nn.Linear):
    """`H Wᵀ + b`, with a bias that starts at the log of the training frequencies (`log_unigram`).

    A learned bias is `b = log_unigram(counts) + s`, where the shift `s` starts at 0 and is the
    parameter: weight decay pulls the bias towards the training frequencies. A fixed bias has no
    parameter.

    The state holds the counts, since half precision would round `log p`; as float64, since a moving
    average such as that of fairseq's --store-ema multiplies every entry. Loading rounds them.

    Args:
        weight: (V, D) W, an existing parameter, such as the input embedding to be tied.
        counts: (V,) how often each token is a target in the training data, at most 2^53.
        learned: False keeps the bias as it starts.

    Examples:
        >>> embedding = nn.Embedding(3, 8)
        >>> layer = UnigramLinear(embedding.weight, torch.tensor([6, 2, 0]))
        >>> (layer(torch.zeros(1, 8)).detach().softmax(-1) * 11).round()
        tensor([[7., 3., 1.]])

    Reference: Meister et al. (2022), "A Natural Bias for Language Generation Models".
    """

    counts: Tensor  # (V,) int64
    bias_shift: nn.Parameter | None  # (V,) s; None if the bias is fixed

    def __init__(self, weight: nn.Parameter, counts: Tensor, *, learned: bool = True) -> None:
        nn.Module.__init__(self)  # nn.Linear's would make a weight and a bias
        self.out_features, self.in_features = weight.shape
        self.weight = weight
        # as floating point, so that they are looked at
        counts = whole_counts(counts.double(), len(weight)).to(weight.device)
        self.register_buffer("counts", counts)
        shift = torch.zeros(len(weight), device=weight.device, dtype=weight.dtype)
        self.register_parameter("bias_shift", nn.Parameter(shift) if learned else None)

    @property
    def bias(self) -> Tensor:  # type: ignore[override]
        """(V,) b, in float32, or in float64 where W is."""
        start = log_unigram(self.counts).to(torch.promote_types(self.weight.dtype, torch.float32))
        return start if self.bias_shift is None else start + self.bias_shift

    def forward(self, features: Tensor) -> Tensor:
        """(…, D) to (…, V) logits."""
        return F.linear(features, self.weight, self.bias.to(features.dtype))

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}counts"] = self.counts.double()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        if (key := f"{prefix}counts") in state_dict:
            state_dict[key] = whole_counts(state_dict[key].double(), self.out_features)
        super()._load_from_state_dict(state_dict, prefix, *rest)
