"""Time and peak memory of the criterions, forward and backward, compared with fairseq's own and
with other packages.

    python -m benchmarks.criterion [--device cpu|cuda] [--dtype bfloat16] [--profile] [--json FILE]

`cross_entropy` is fairseq's criterion; the other criterions are those of this package, with
counters and candidates included; `compiled cross_entropy` (by torch.compile),
`linear_cross_entropy` (torch's own from 2.13, in chunks), `liger-kernel` and `cut-cross-entropy`
(`pip install -e '.[peers]'`) compute plain likelihood. `three products` is the lower bound: the
bare matrix products of any softmax layer.

In each of `--repeats` rounds every variant runs once; times are medians over rounds, and ratios
medians of the ratios within a round. The peak memory of each variant is what is allocated beyond
the features and the output embedding, including their gradients, on a CPU in a new process;
the last column is without the gradients. On a GPU, where the host may take longer than the kernels,
the times are also measured behind 5 ms of other work, as in a training; `--profile` prints the
kernels of `mle`.
"""

import functools
import importlib.util
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .measuring import Case, Step, Variants, compare, pause
from .output_layer_model import OutputLayer

SIZES = {  # device: V, N, D
    "cpu": [(8_000, 1024, 512), (8_000, 4096, 512), (44_256, 1024, 512), (44_256, 4096, 512)],
    "cuda": [
        (44_256, 8192, 512),
        (44_256, 32_768, 1024),
        (267_744, 8192, 1024),
        (128_256, 8192, 4096),
    ],
}
CRITERIONS = {  # variant: criterion and options
    "mle": ("mle", {}),
    "agg": ("agg", {"agg_rare_fraction": 0.2, "agg_window": 100}),
    "agps": ("agps", {"agps_rare_rank": 1}),
    "cosreg": ("cosreg", {}),
    "unlikelihood": ("unlikelihood", {}),
    "face": ("face", {}),
    "adversarial": ("mle", {"adv_epsilon": 0.005}),
}
PEERS = ("compiled cross_entropy", "linear_cross_entropy", "liger-kernel", "cut-cross-entropy")
FLOOR = "three products"

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of features (N, D), weight (V, D) and target (N,): the sum of −log P[y]."""


def build(case: Case, dtype: torch.dtype, device: str) -> Variants:
    """A forward and backward pass of each variant."""
    torch.manual_seed(0)
    layer = OutputLayer(case, dtype, device)
    features, weight, target = layer.features, layer.weight, layer.sample["target"].flatten()
    layer.add("cross_entropy", "cross_entropy")

    @torch.no_grad()
    def three_products() -> None:
        pause()
        h = features.flatten(0, 1)
        logits = h @ weight.t()
        logits @ weight
        logits.t() @ h

    layer.variants.steps[FLOOR] = three_products
    for variant, (name, options) in CRITERIONS.items():
        layer.add(variant, name, **options)

    def peer_step(loss: Loss) -> Step:
        def step() -> None:
            pause()
            loss(features.flatten(0, 1), weight, target).backward()

        return step

    for peer in PEERS:
        reason = why_not(peer, device, dtype)
        layer.variants.steps[peer] = reason or peer_step(peer_loss(peer))
    return layer.variants


def why_not(peer: str, device: str, dtype: torch.dtype) -> str | None:
    """The reason why another package cannot be run here; None if it can."""
    if peer == "compiled cross_entropy":
        return None  # a C++ compiler is needed on a CPU
    if peer == "linear_cross_entropy":
        return None if hasattr(F, "linear_cross_entropy") else "torch has none"
    if device == "cpu":
        return "needs a GPU"
    if importlib.util.find_spec(peer.replace("-", "_")) is None:
        return "not installed"
    if peer == "cut-cross-entropy" and dtype == torch.float32:
        return "half precision only"
    return None


def peer_loss(peer: str) -> Loss:
    """The loss of another package that can be run."""
    if peer == "compiled cross_entropy":
        return torch.compile(
            lambda h, w, y: F.cross_entropy(F.linear(h, w).float(), y, reduction="sum")
        )
    options = {"reduction": "sum"}
    if peer == "linear_cross_entropy":
        options["options"] = torch.nn.LinearCrossEntropyOptions()
        loss = F.linear_cross_entropy
    elif peer == "liger-kernel":
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy as loss
    else:
        from cut_cross_entropy import linear_cross_entropy as loss
    return functools.partial(loss, **options)


if __name__ == "__main__":
    compare(__doc__, SIZES, build, FLOOR)
