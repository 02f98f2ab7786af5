"""Cost of the factorized output layer (F²-Softmax) compared with the full and the adaptive softmax.

    python -m benchmarks.f2_softmax [--device cpu|cuda] [--dtype bfloat16] [--json FILE]

Time and peak memory of the output layer's forward and backward, as fractions of fairseq's
`cross_entropy` on the same features. Targets are drawn from the token frequencies, Zipf–Mandelbrot
with p ∝ 1/(rank + 2.7), which also determine the classes; the dictionary is sorted by frequency, as
fairseq writes it. `adaptive softmax` is fairseq's, with its default factor of 4, cut off at V/20
and V/4: it has fewer parameters.

All variants run in turn for `--repeats` rounds; times are medians over rounds, and ratios medians
of the ratios within a round. On a GPU, training is also measured behind 5 ms of other work. Memory
(on a CPU in a process of its own) is beyond features and output embedding, including their
gradients.
"""

import argparse
import json
from typing import Any

import torch
from fairseq.modules import AdaptiveSoftmax
from torch import Tensor, nn

from agg_fairseq.f2.frequency_classes import equal_frequency, mefmax
from agg_fairseq.fairseq_plugin.models.transformer_f2 import F2Layer
from agg_fairseq.files import write_json

from .measuring import (
    RETURN_FREED_MEMORY,
    Step,
    behind_a_model,
    devices,
    free,
    interleaved,
    machine,
    pause,
    peak_mib,
    row,
    run_alone,
    size,
)
from .output_layer_model import (
    OutputLayerModel,
    OutputLayerTask,
    batch,
    criterion,
)

SIZES = {  # device: V, N, D
    "cpu": [(8_000, 4096, 512), (44_256, 2048, 512)],
    "cuda": [(44_256, 8192, 512), (44_256, 32_768, 1024), (267_744, 8192, 1024)],
}
DTYPES = {"cpu": "float32", "cuda": "bfloat16"}
HEADER = (
    "| V | N | D | variant | time [ms] | × the first | × mle | behind a model [ms] | peak [MiB] "
    "| × the first |\n|--:|--:|--:|:--|--:|--:|--:|--:|--:|--:|"
)


def main() -> None:
    """Runs all variants and prints a table per device."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--device", help="cpu or cuda (default: cpu, and cuda where there is one)")
    made.add_argument("--dtype", help="default: float32, on a GPU bfloat16")
    made.add_argument("--repeats", type=int, default=5, help="timed rounds (default: 5)")
    made.add_argument(
        "--sizes", nargs="+", type=size, metavar="V,N,D", help="vocabulary, positions and features"
    )
    made.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    made.add_argument("--memory", nargs=3, metavar=("V,N,D", "DTYPE", "DEVICE"), help="internal")
    options = made.parse_args()
    if options.memory:
        case, dtype, device = options.memory
        print(json.dumps(measure_peaks(size(case), dtype, device)))
        return
    results: list[dict[str, Any]] = []
    for device in devices(options.device):
        dtype = options.dtype or DTYPES[device]
        print(f"\n{machine(device)}, {dtype}, median of {options.repeats} rounds\n\n{HEADER}")
        for case in options.sizes or SIZES[device]:
            if device == "cpu":
                given = ("--memory", ",".join(map(str, case)), dtype, device)
                peaks = run_alone("benchmarks.f2_softmax", *given, environment=RETURN_FREED_MEMORY)
            else:
                peaks = measure_peaks(case, dtype, device)
            steps = training(case, dtype, device)[0]
            times = interleaved(steps, options.repeats, device)
            behind = {} if device == "cpu" else behind_a_model(steps, options.repeats, device)
            results += report(case, times, peaks, behind)
            del steps
            free(device)
    if options.json:
        machines = [machine(device) for device in devices(options.device)]
        write_json(options.json, {"results": results, "machines": machines})


def measure_peaks(case: tuple[int, int, int], dtype: str, device: str) -> dict[str, float]:
    """The peak memory of each variant of training, in MiB."""
    steps, trained = training(case, dtype, device)
    peaks = {}
    for name, step in steps.items():
        peaks[name] = peak_mib(step, lambda: clear(trained), device)
    return peaks


def report(
    case: tuple[int, int, int],
    times: dict[str, tuple[float, float]],
    peaks: dict[str, float],
    behind: dict[str, float],
) -> list[dict[str, Any]]:
    """Prints and returns a row for each variant."""
    base = next(iter(times))
    results = []
    for name, (seconds, ratio) in times.items():
        cells = [*(f"{number:,}" for number in case), name]
        result = dict(zip("VND", case, strict=True))
        result |= {"variant": name, "ms": 1000 * seconds, "time_ratio": ratio}
        cells += [f"{1000 * seconds:.2f}", f"{ratio:.2f}"]
        cells.append(f"{ratio / times['mle'][1]:.2f}")
        cells.append(f"{1000 * behind[name]:.2f}" if behind else "")
        if behind:
            result["behind_ms"] = 1000 * behind[name]
        result["mib"] = peaks[name]
        cells += [f"{peaks[name]:,.0f}", f"{peaks[name] / peaks[base]:.2f}"]
        print(row(cells), flush=True)
        results.append(result)
    return results


def zipf_mandelbrot(vocabulary: int) -> Tensor:
    """Counts (V,) int64 by rank in a corpus of 10⁸ tokens; 0 for bos and pad."""
    p = 1 / (torch.arange(1, vocabulary - 1, dtype=torch.float64) + 2.7)  # V - 2
    return torch.cat([torch.zeros(2), 10**8 * p / p.sum()]).long()


def clear(trained: list[Tensor]) -> None:
    """Drops the gradients."""
    for tensor in trained:
        tensor.grad = None


def training(
    case: tuple[int, int, int], dtype: str, device: str
) -> tuple[dict[str, Step], list[Tensor]]:
    """A forward and backward pass for each variant, fairseq's first; and what they train."""
    torch.manual_seed(0)
    (vocabulary, positions, dimension), dtype = case, getattr(torch, dtype)
    task, full = OutputLayerTask(vocabulary), OutputLayerModel(dimension, vocabulary)
    full.to(device, dtype)
    weight, counts = full.decoder.output_projection.weight, zipf_mandelbrot(vocabulary)
    target = torch.multinomial(counts.double(), positions, replacement=True)
    sample = batch(positions, dimension, vocabulary, device, target=target, dtype=dtype)
    features = sample["net_input"]["src_tokens"]
    trained = [features, weight]

    def by_criterion(name: str, classes: Tensor | None = None, **options: Any) -> Step:
        objective, model = criterion(name, task, **options).to(device).train(), full
        if classes is not None:
            layer = F2Layer(weight, "mefmax", 0)
            layer.assign(classes)
            trained.append(layer.to(device, dtype).class_weight)
            model = OutputLayerModel(dimension, vocabulary, layer)

        def step() -> None:
            clear(trained)
            objective(model, sample)[0].backward()

        return step

    cutoffs = [vocabulary // 20, vocabulary // 4]
    adaptive = AdaptiveSoftmax(vocabulary, dimension, cutoffs, dropout=0.0).to(device, dtype)
    trained.extend(adaptive.parameters())

    def adaptive_step() -> None:
        clear(trained)
        pause()
        outputs, targets = adaptive(features, sample["target"].clone())
        pairs = [(o, t) for o, t in zip(outputs, targets, strict=True) if t is not None]
        sum(nn.functional.cross_entropy(o, t, reduction="sum") for o, t in pairs).backward()

    return {
        "cross_entropy": by_criterion("cross_entropy"),
        "mle": by_criterion("mle"),
        "adaptive softmax": adaptive_step,
        "f2_softmax, MefMax": by_criterion("f2_softmax", mefmax(counts)),
        "f2_softmax, 8 classes of equal frequency": by_criterion(
            "f2_softmax", equal_frequency(counts, 8)
        ),
        "f2_softmax, MefMax, label smoothing 0.1": by_criterion(
            "f2_softmax", mefmax(counts), label_smoothing=0.1
        ),
    }, trained


if __name__ == "__main__":
    main()
