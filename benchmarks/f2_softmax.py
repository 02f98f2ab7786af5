"""Cost of the factorized output layer (F²-Softmax) compared with the full and the adaptive softmax.

    python -m benchmarks.f2_softmax [--device cpu|cuda] [--json FILE]

Training: time and peak memory of the output layer's forward and backward, as fractions of fairseq's
`cross_entropy` on the same features. Targets are drawn from the token frequencies, Zipf–Mandelbrot
with p ∝ 1/(rank + 2.7), which also determine the classes; the dictionary is sorted by frequency, as
fairseq writes it. `adaptive softmax` is fairseq's, with its default factor of 4, cut off at V/20
and V/4: it has fewer parameters.

Generation: time of the log-probabilities of the next token and of the choice of the 10 most
probable ones, by fairseq's own `EnsembleModel` and `BeamSearch`, for N hypotheses per step, as
fractions of the full softmax.

All variants run in turn for `--repeats` rounds; times are medians over rounds, and ratios medians
of the ratios within a round. Memory is measured in a process of its own, beyond features and output
embedding, including their gradients.
"""

import argparse
import json
from typing import Any

import torch
from fairseq.modules import AdaptiveSoftmax
from fairseq.search import BeamSearch
from torch import Tensor, nn

from agg_fairseq.f2 import FactorizedSoftmax
from agg_fairseq.f2.frequency_classes import equal_frequency, mefmax
from agg_fairseq.files import write_json

from .measuring import (
    RETURN_FREED_MEMORY,
    Step,
    devices,
    interleaved,
    machine,
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
    generating_model,
)

FEATURES = 512
SIZES = [(8_000, 4096), (44_256, 2048)]  # V, N
ROWS = (1, 160)
BEAM = 5


def main() -> None:
    """Runs all variants and prints two tables per device."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="cpu or cuda (default: cpu, and cuda where there is one)")
    parser.add_argument(
        "--repeats", type=int, default=5, help="rounds, of which the median counts (default: 5)"
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=size,
        default=SIZES,
        metavar="V,N",
        help="vocabulary and positions",
    )
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--memory", nargs=3, metavar=("V", "N", "DEVICE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        vocabulary, positions, device = options.memory
        steps, trained = training(int(vocabulary), int(positions), device)
        print(
            json.dumps(
                {
                    name: peak_mib(step, lambda: clear(trained), device)
                    for name, step in steps.items()
                }
            )
        )
        return
    results: list[dict[str, Any]] = []
    for device in devices(options.device):
        print(f"\n{machine(device)}, D = {FEATURES}, median of {options.repeats} rounds\n")
        print(
            "| V | N | variant | time [ms] | × the first | peak [MiB] | × "
            "|\n|--:|--:|:--|--:|--:|--:|--:|"
        )
        for vocabulary, positions in options.sizes:
            times = interleaved(training(vocabulary, positions, device)[0], options.repeats, device)
            case = ("--memory", str(vocabulary), str(positions), device)
            peaks = run_alone("benchmarks.f2_softmax", *case, environment=RETURN_FREED_MEMORY)
            results += report(vocabulary, positions, times, peaks)
            for rows in ROWS:
                results += report(
                    vocabulary,
                    rows,
                    interleaved(generation(vocabulary, rows, device), options.repeats, device),
                )
    if options.json:
        write_json(
            options.json,
            {"results": results, "machines": [machine(d) for d in devices(options.device)]},
        )


def report(
    vocabulary: int,
    positions: int,
    times: dict[str, tuple[float, float]],
    peaks: dict[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Prints and returns a row for each variant."""
    base = next(iter(times))
    results = []
    for name, (seconds, ratio) in times.items():
        memory = [f"{peaks[name]:,.0f}", f"{peaks[name] / peaks[base]:.2f}"] if peaks else ["", ""]
        print(
            row(
                [
                    f"{vocabulary:,}",
                    f"{positions:,}",
                    name,
                    f"{1000 * seconds:.1f}",
                    f"{ratio:.2f}",
                    *memory,
                ]
            )
        )
        results.append(
            {
                "variant": name,
                "V": vocabulary,
                "N": positions,
                "ms": 1000 * seconds,
                "time_ratio": ratio,
            }
        )
        if peaks:
            results[-1]["mib"] = peaks[name]
    return results


def zipf_mandelbrot(vocabulary: int) -> Tensor:
    """Counts (V,) int64 by rank in a corpus of 10⁸ tokens; 0 for bos and pad."""
    p = 1 / (torch.arange(1, vocabulary - 1, dtype=torch.float64) + 2.7)  # V - 2
    return torch.cat([torch.zeros(2), 10**8 * p / p.sum()]).long()


def clear(trained: list[Tensor]) -> None:
    """Drops the gradients."""
    for tensor in trained:
        tensor.grad = None


def training(vocabulary: int, positions: int, device: str) -> tuple[dict[str, Step], list[Tensor]]:
    """A forward and backward pass for each variant, fairseq's first; and what they train."""
    torch.manual_seed(0)
    task, full = OutputLayerTask(vocabulary), OutputLayerModel(FEATURES, vocabulary).to(device)
    weight, counts = full.decoder.output_projection.weight, zipf_mandelbrot(vocabulary)
    target = torch.multinomial(counts.double(), positions, replacement=True)
    sample = batch(positions, FEATURES, vocabulary, device, target=target)
    features = sample["net_input"]["features"]
    trained = [features, weight]

    def by_criterion(name: str, classes: Tensor | None = None, **options: Any) -> Step:
        objective, model = criterion(name, task, **options).to(device).train(), full
        if classes is not None:
            layer = FactorizedSoftmax(classes, FEATURES, weight).to(device)
            trained.append(layer.class_weight)
            model = OutputLayerModel(FEATURES, vocabulary, layer)

        def step() -> None:
            clear(trained)
            objective(model, sample)[0].backward()

        return step

    adaptive = AdaptiveSoftmax(
        vocabulary, FEATURES, [vocabulary // 20, vocabulary // 4], dropout=0.0
    ).to(device)
    trained.extend(adaptive.parameters())

    def adaptive_step() -> None:
        clear(trained)
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


def generation(vocabulary: int, rows: int, device: str) -> dict[str, Step]:
    """The next tokens of 160 hypotheses, `rows` at a time, for the full softmax and each
    `--f2-decoding`."""
    torch.manual_seed(0)
    full = nn.Linear(FEATURES, vocabulary, bias=False, device=device)
    nn.init.normal_(full.weight, std=FEATURES**-0.5)
    features = torch.randn(160 // rows, rows, 1, FEATURES, device=device)
    search = BeamSearch(OutputLayerTask(8).dictionary)

    def step_of(layer: nn.Module, decoding: str) -> Step:
        model, scores = generating_model(layer, decoding), features.new_zeros(rows, 1, 1)

        @torch.no_grad()
        def step() -> None:
            for tokens in features:
                log_probs, _ = model.forward_decoder(tokens, [], [{}])
                search.step(1, log_probs[:, None], scores, candidate_multiple=2 * BEAM)

        return step

    classes = mefmax(zipf_mandelbrot(vocabulary))
    return {
        "generation, full softmax": step_of(full, ""),
        **{
            f"generation, {decoding}": step_of(
                FactorizedSoftmax(classes, FEATURES, full.weight).to(device), decoding
            )
            for decoding in ("joint", "greedy-class", "sample-class")
        },
    }


if __name__ == "__main__":
    main()
