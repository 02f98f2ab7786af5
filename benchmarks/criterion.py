"""Time and peak memory of the criterions, forward and backward, compared with fairseq's own and
with other packages.

    python -m benchmarks.criterion [--device cpu|cuda] [--dtype bfloat16] [--profile] [--json FILE]

`cross_entropy` is fairseq's criterion; the other criterions are those of this package, with
counters and candidates included;
`compiled cross_entropy` (by torch.compile), `linear_cross_entropy`, `liger-kernel` and
`cut-cross-entropy` (`pip install -e '.[peers]'`) compute plain likelihood. `three products` is the
lower bound: the bare matrix products of any softmax layer, without a softmax.

In each of `--repeats` rounds every variant runs once; times are medians over rounds, and ratios
medians of the ratios within a round. The peak memory of each variant is what is allocated beyond
the features and the output embedding, including their gradients, on a CPU in a process of its own;
the last column is without the gradients. On a GPU, where the host may take longer than the kernels,
the times are also measured behind 5 ms of other work, as in a training; `--profile` prints the
kernels of `mle`.
"""

import argparse
import importlib.util
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .measuring import (
    RETURN_FREED_MEMORY,
    Step,
    bare_products,
    behind_a_model,
    devices,
    free,
    interleaved,
    kernels,
    machine,
    pause,
    peak_mib,
    row,
    run_alone,
    size,
)

SIZES = {  # device: V, N, D
    "cpu": [(8_000, 1024, 512), (8_000, 4096, 512), (44_256, 1024, 512), (44_256, 4096, 512)],
    "cuda": [
        (44_256, 8192, 512),
        (44_256, 32_768, 1024),
        (267_744, 8192, 1024),
        (128_256, 8192, 4096),
    ],
}
DTYPES = {"cpu": "float32", "cuda": "bfloat16"}
CRITERIONS = {  # variant: criterion and options
    "cross_entropy": ("cross_entropy", {}),
    "mle": ("mle", {}),
    "agg": ("agg", {"agg_rare_fraction": 0.2, "agg_window": 100}),
    "agps": ("agps", {"agps_rare_rank": 1}),
    "cosreg": ("cosreg", {}),
    "unlikelihood": ("unlikelihood", {}),
    "face": ("face", {}),
    "adversarial": ("mle", {"adv_epsilon": 0.005}),
}
PEERS = ("compiled cross_entropy", "linear_cross_entropy", "liger-kernel", "cut-cross-entropy")
"""torch.compile of a linear layer and cross_entropy; torch's own (from 2.13), chunked; the extra
`peers`."""
BASE, FLOOR = "cross_entropy", "three products"
VARIANTS = (*CRITERIONS, *PEERS, FLOOR)
HEADER = (
    "| V | N | D | variant | time [ms] | × cross_entropy | × three products | behind a model [ms] "
    "| peak [MiB] | × cross_entropy | less gradients [MiB] |\n"
    "|--:|--:|--:|:--|--:|--:|--:|--:|--:|--:|--:|"
)

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of features (N, D), weight (V, D) and target (N,): the sum of −log P[y]."""


def main() -> None:
    """Runs all variants and prints a table per device."""
    options = parser().parse_args()
    logging.disable(logging.INFO)
    if options.memory:
        variant, case, dtype, device = options.memory
        layer = OutputLayer(*size(case), dtype, device)
        print(json.dumps({"mib": peak_mib(layer.step(variant), layer.clear, device)}))
        return
    results, places = [], devices(options.device)
    for device in places:
        dtype = options.dtype or DTYPES[device]
        print(f"\n{machine(device)}, {dtype}, median of {options.repeats}\n\n{HEADER}")
        for case in options.sizes or SIZES[device]:
            layer = OutputLayer(*case, dtype, device)
            results += report(layer, options.variants, options.repeats)
            if options.profile and device != "cpu":
                print(f"\n{kernels(layer.step('mle'))}\n")
            del layer
            free(device)
    if options.json:
        from agg_fairseq.files import write_json

        write_json(
            options.json, {"results": results, "machines": [machine(device) for device in places]}
        )


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--device", help="cpu or cuda (default: cpu, and cuda where there is one)")
    made.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        help="default: float32, on a GPU bfloat16",
    )
    made.add_argument("--repeats", type=int, default=5, help="timed rounds (default: 5)")
    made.add_argument(
        "--variants",
        nargs="+",
        default=VARIANTS,
        choices=VARIANTS,
        metavar="V",
        help="default: all",
    )
    made.add_argument(
        "--sizes", nargs="+", type=size, metavar="V,N,D", help="vocabulary, positions and features"
    )
    made.add_argument("--profile", action="store_true", help="print the kernels of mle on a GPU")
    made.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    made.add_argument(
        "--memory", nargs=4, metavar=("VARIANT", "V,N,D", "DTYPE", "DEVICE"), help=argparse.SUPPRESS
    )
    return made


class OutputLayer:
    """Features (N, D), targets and an output embedding (V, D), with one training step for each
    variant."""

    def __init__(
        self, vocabulary: int, positions: int, features: int, dtype: str, device: str
    ) -> None:
        from benchmarks.output_layer_model import OutputLayerModel, OutputLayerTask, batch

        torch.manual_seed(0)
        self.case = (vocabulary, positions, features, dtype, device)
        self.device, self.task = device, OutputLayerTask(vocabulary)
        self.model = OutputLayerModel(features, vocabulary).to(device, getattr(torch, dtype))
        self.sample = batch(positions, features, vocabulary, device, dtype=getattr(torch, dtype))
        self.features = self.sample["net_input"]["src_tokens"]
        self.weight, self.target = (
            self.model.decoder.output_projection.weight,
            self.sample["target"],
        )

    def clear(self) -> None:
        """Drops the gradients."""
        self.features.grad = self.weight.grad = None

    def step(self, variant: str) -> Step:
        """One forward and backward pass of a variant, as a function to be timed."""
        if variant == FLOOR:
            return bare_products(self.features.flatten(0, 1), self.weight)
        if variant in CRITERIONS:
            return self._criterion(*CRITERIONS[variant])
        loss = peer_loss(variant)

        def step() -> None:
            self.clear()
            pause()
            loss(self.features.flatten(0, 1), self.weight, self.target.flatten()).backward()

        return step

    def gradients_mib(self) -> float:
        """Memory of the gradients, in MiB."""
        return sum(t.numel() * t.element_size() for t in (self.features, self.weight)) / 2**20

    def _criterion(self, name: str, options: dict[str, Any]) -> Step:
        from benchmarks.output_layer_model import criterion

        objective = criterion(name, self.task, **options).to(self.device).train()
        updates = iter(range(10**6))

        def step() -> None:
            self.clear()
            if hasattr(objective, "start_update"):
                objective.start_update(next(updates))
            objective(self.model, self.sample)[0].backward()

        return step


def report(layer: OutputLayer, variants: Sequence[str], repeats: int) -> list[dict[str, object]]:
    """Measures every variant at one size, and prints a row for each."""
    vocabulary, positions, features, dtype, device = layer.case
    wanted = [BASE, FLOOR, *(variant for variant in variants if variant not in (BASE, FLOOR))]
    steps: dict[str, Step] = {}
    peaks: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for variant in wanted:
        reason = why_not(variant, device, dtype) if variant in PEERS else None
        if reason is None:
            try:
                step = layer.step(variant)
                peaks[variant] = memory(variant, step, layer)
                steps[variant] = step
            except torch.OutOfMemoryError:
                reason = "not run: out of memory"
            free(device)
        if reason is not None:
            reasons[variant] = reason
    times = interleaved(steps, repeats, device)
    behind = {} if device == "cpu" else behind_a_model(steps, repeats, device)
    layer.clear()

    results: list[dict[str, object]] = []
    for variant in wanted:
        case = {"variant": variant, "V": vocabulary, "N": positions, "D": features}
        case |= {"dtype": dtype, "device": device}
        cells = [f"{vocabulary:,}", f"{positions:,}", f"{features:,}", variant]
        if variant in times:
            ms, ratio, mib = 1000 * times[variant][0], times[variant][1], peaks[variant]
            floor_ratio, more = ratio / times[FLOOR][1], mib - layer.gradients_mib()
            memory_ratio = mib / next(iter(peaks.values()))
            case |= {"ms": ms, "time_ratio": ratio, "floor_ratio": floor_ratio, "mib": mib}
            case |= {"not_gradients_mib": more, "memory_ratio": memory_ratio}
            cells += [f"{ms:,.0f}" if ms >= 10 else f"{ms:.2f}", f"{ratio:.2f}"]
            cells.append(f"{floor_ratio:.2f}")
            cells.append(f"{1000 * behind[variant]:.2f}" if behind else "")
            if behind:
                case["behind_ms"] = 1000 * behind[variant]
            cells += [f"{mib:,.0f}", f"{memory_ratio:.2f}", f"{more:,.0f}"]
        else:
            cells += [reasons[variant], *[""] * 6]
        results.append(case)
        print(row(cells), flush=True)
    return results


def memory(variant: str, step: Step, layer: OutputLayer) -> float:
    """The peak memory of one variant in MiB, on a CPU measured in a process of its own."""
    vocabulary, positions, features, dtype, device = layer.case
    if device != "cpu":
        return peak_mib(step, layer.clear, device)
    case = ("--memory", variant, f"{vocabulary},{positions},{features}", dtype, device)
    return run_alone("benchmarks.criterion", *case, environment=RETURN_FREED_MEMORY)["mib"]


def why_not(peer: str, device: str, dtype: str) -> str | None:
    """The reason why another package cannot be run here; None if it can."""
    if peer == "compiled cross_entropy":
        return None  # a C++ compiler is needed on a CPU
    if peer == "linear_cross_entropy":
        has_it = hasattr(torch.nn.functional, "linear_cross_entropy")
        return None if has_it else "not run: torch has none"
    if device == "cpu":
        return "not run: needs a GPU"
    if importlib.util.find_spec(peer.replace("-", "_")) is None:
        return "not run: not installed"
    if peer == "cut-cross-entropy" and dtype == "float32":
        return "not run: half precision only"
    return None


def peer_loss(peer: str) -> Loss:
    """The loss of another package that can be run."""
    if peer == "compiled cross_entropy":
        cross_entropy, linear = torch.nn.functional.cross_entropy, torch.nn.functional.linear
        return torch.compile(
            lambda h, w, y: cross_entropy(linear(h, w).float(), y, reduction="sum")
        )
    if peer == "linear_cross_entropy":
        options = torch.nn.LinearCrossEntropyOptions()
        return lambda h, w, y: torch.nn.functional.linear_cross_entropy(
            h, w, y, reduction="sum", options=options
        )
    if peer == "liger-kernel":
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        return lambda h, w, y: liger_fused_linear_cross_entropy(h, w, y, reduction="sum")
    from cut_cross_entropy import linear_cross_entropy

    return lambda h, w, y: linear_cross_entropy(h, w, y, reduction="sum")


if __name__ == "__main__":
    main()
