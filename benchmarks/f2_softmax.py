"""Cost of the factorized output layer (F²-Softmax) compared with the full and the adaptive softmax.

    python -m benchmarks.f2_softmax [--device cpu|cuda] [--dtype bfloat16] [--json FILE]

Time and peak memory are measured as by criterion.py. Targets are drawn from the token frequencies,
Zipf–Mandelbrot with p ∝ 1/(rank + 2.7), which also determine the classes; the dictionary is sorted
by frequency, as fairseq writes it. `adaptive softmax` is fairseq's, with its default factor of 4,
cut off at V/20 and V/4: it has fewer parameters.
"""

import torch
from fairseq.modules import AdaptiveSoftmax
from torch import Tensor, nn

from agg_fairseq.f2.frequency_classes import equal_frequency, mefmax
from agg_fairseq.fairseq_plugin.models.transformer_f2 import F2Layer

from .measuring import Case, Variants, compare, pause
from .output_layer_model import OutputLayer, OutputLayerModel

SIZES = {  # device: V, N, D
    "cpu": [(8_000, 4096, 512), (44_256, 2048, 512)],
    "cuda": [(44_256, 8192, 512), (44_256, 32_768, 1024), (267_744, 8192, 1024)],
}


def zipf_mandelbrot(vocabulary: int) -> Tensor:
    """Counts (V,) int64 by rank in a corpus of 10⁸ tokens; 0 for bos and pad."""
    p = 1 / (torch.arange(1, vocabulary - 1, dtype=torch.float64) + 2.7)  # V - 2
    return torch.cat([torch.zeros(2), 10**8 * p / p.sum()]).long()


def build(case: Case, dtype: torch.dtype, device: str) -> Variants:
    """A forward and backward pass of each variant."""
    torch.manual_seed(0)
    vocabulary, positions, width = case
    counts = zipf_mandelbrot(vocabulary)
    target = torch.multinomial(counts.double(), positions, replacement=True)
    full = OutputLayer(case, dtype, device, target)
    for name in ("cross_entropy", "mle"):
        full.add(name, name)

    cutoffs = [vocabulary // 20, vocabulary // 4]
    adaptive = AdaptiveSoftmax(vocabulary, width, cutoffs, dropout=0.0).to(device, dtype)
    full.variants.trained.extend(adaptive.parameters())

    def adaptive_step() -> None:
        pause()
        outputs, targets = adaptive(full.features, full.sample["target"].clone())
        pairs = [(o, t) for o, t in zip(outputs, targets, strict=True) if t is not None]
        sum(nn.functional.cross_entropy(o, t, reduction="sum") for o, t in pairs).backward()

    full.variants.steps["adaptive softmax"] = adaptive_step
    for name, classes, smoothing in (
        ("MefMax", mefmax(counts), 0.0),
        ("8 classes of equal frequency", equal_frequency(counts, 8), 0.0),
        ("MefMax, label smoothing 0.1", mefmax(counts), 0.1),
    ):
        layer = F2Layer(full.weight, "mefmax", 0)
        layer.assign(classes)
        model = OutputLayerModel(width, vocabulary, layer.to(device, dtype))
        full.variants.trained.append(layer.class_weight)
        full.add(f"f2_softmax, {name}", "f2_softmax", model, label_smoothing=smoothing)
    return full.variants


if __name__ == "__main__":
    compare(__doc__, SIZES, build, "mle")
