"""Time and peak memory of the criterions, forward and backward, beside fairseq's own and what else there is.

    python -m benchmarks.criterion [--device cpu|cuda] [--dtype bfloat16] [--json FILE]

`cross_entropy` is fairseq's criterion; the named criterions are ours, with counters and candidates included; `three
logits` is the paper's Eqs. 9–10 in plain autograd; `linear_cross_entropy`, `liger-kernel` and `cut-cross-entropy`
(`pip install -e '.[peers]'`) are peers for plain likelihood. `three products` is the floor: the bare matrix products of
any softmax layer, without a softmax.

In each of `--repeats` rounds every variant runs once; times are medians over rounds, and ratios medians of the ratios
within a round. Peak memory is measured in a process of its own for each variant. It counts what is allocated beyond the
features and the output embedding, their gradients included; the last column leaves the gradients out.
"""

import argparse
import json
import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .measuring import (
    RETURN_FREED_MEMORY,
    Step,
    bare_products,
    devices,
    interleaved,
    machine,
    peak_mib,
    row,
    run_alone,
    size,
)
from .peers import PEERS, peer_loss, why_not

SIZES = {  # device: V, N
    "cpu": [(8_000, 1024), (8_000, 4096), (44_256, 1024), (44_256, 4096)],
    "cuda": [(8_000, 32_768), (44_256, 8192), (44_256, 32_768)],
}
FEATURES = {"cpu": 512, "cuda": 1024}
DTYPES = {"cpu": "float32", "cuda": "bfloat16"}
RARE_FRACTION = 0.2
AGG = {"agg_rare_fraction": RARE_FRACTION, "agg_window": 100}
CRITERIONS = {  # variant: criterion and options
    "cross_entropy": ("cross_entropy", {}),
    "mle": ("mle", {}),
    "agg": ("agg", AGG),
    "agg faded": ("agg", AGG | {"agg_gates": "faded"}),
    "agg continuous": ("agg", AGG | {"agg_gates": "continuous"}),
    "agps": ("agps", {"agps_rare_rank": 1}),
    "freeze_rare bc": ("freeze_rare", {"freeze_parts": "bc"}),
    "freeze_rare all": ("freeze_rare", {}),
    "cosreg": ("cosreg", {}),
    "unlikelihood": ("unlikelihood", {}),
    "ul + agg": ("agg", AGG | {"ul_alpha": 1.0}),
    "face": ("face", {}),
}
BASE, FLOOR, LITERAL = "cross_entropy", "three products", "three logits"
VARIANTS = (*CRITERIONS, *PEERS, LITERAL, FLOOR)
HEADER = (
    "| V | N | variant | time [ms] | × cross_entropy | × three products | peak [MiB] | × cross_entropy "
    "| less gradients [MiB] |\n|--:|--:|:--|--:|--:|--:|--:|--:|--:|"
)


def main() -> None:
    """Runs all variants and prints a table per device."""
    options = parser().parse_args()
    logging.disable(logging.INFO)
    if options.memory:
        variant, vocabulary, positions, device = options.memory
        layer = OutputLayer(int(vocabulary), int(positions), options.features, options.dtype, device)
        print(json.dumps({"mib": peak_mib(layer.step(variant), layer.clear, device)}))
        return
    results, places = [], devices(options.device)
    for device in places:
        features, dtype = options.features or FEATURES[device], options.dtype or DTYPES[device]
        print(f"\n{machine(device)}, D = {features}, {dtype}, median of {options.repeats}\n\n{HEADER}")
        for vocabulary, positions in options.sizes or SIZES[device]:
            layer = OutputLayer(vocabulary, positions, features, dtype, device)
            results += report(layer, options.variants, options.repeats)
    if options.json:
        from agg_fairseq.files import write_json

        write_json(options.json, {"results": results, "machines": [machine(device) for device in places]})


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", help="cpu or cuda (default: cpu, and cuda where there is one)")
    made.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), help="default: float32, on a GPU bfloat16")
    made.add_argument("--features", type=int, metavar="D", help="default: 512, on a GPU 1024")
    made.add_argument("--repeats", type=int, default=5, help="timed rounds (default: 5)")
    made.add_argument("--variants", nargs="+", default=VARIANTS, choices=VARIANTS, metavar="V", help="default: all")
    made.add_argument("--sizes", nargs="+", type=size, metavar="V,N", help="vocabulary and positions")
    made.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    made.add_argument("--memory", nargs=4, metavar=("VARIANT", "V", "N", "DEVICE"), help=argparse.SUPPRESS)
    return made


class OutputLayer:
    """Features (N, D), targets and an output embedding (V, D), and every way to train them."""

    def __init__(self, vocabulary: int, positions: int, features: int, dtype: str, device: str) -> None:
        from benchmarks.output_layer_model import OutputLayerModel, OutputLayerTask, batch

        torch.manual_seed(0)
        self.case = (vocabulary, positions, features, dtype, device)
        self.device, self.task = device, OutputLayerTask(vocabulary)
        self.model = OutputLayerModel(features, vocabulary).to(device, getattr(torch, dtype))
        self.sample = batch(positions, features, vocabulary, device, dtype=getattr(torch, dtype))
        self.features = self.sample["net_input"]["features"]
        self.weight, self.target = self.model.decoder.output_projection.weight, self.sample["target"]

    def clear(self) -> None:
        """Drops the gradients."""
        self.features.grad = self.weight.grad = None

    def step(self, variant: str) -> Step:
        """One forward and backward."""
        if variant == FLOOR:
            return bare_products(self.features.flatten(0, 1), self.weight)
        if variant in CRITERIONS:
            return self._criterion(*CRITERIONS[variant])
        loss = literal if variant == LITERAL else peer_loss(variant)

        def step() -> None:
            self.clear()
            loss(self.features.flatten(0, 1), self.weight, self.target.flatten()).backward()

        return step

    def gradients_mib(self) -> float:
        """What the gradients take."""
        return sum(t.numel() * t.element_size() for t in (self.features, self.weight)) / 2**20

    def _criterion(self, name: str, options: dict[str, Any]) -> Step:
        from benchmarks.output_layer_model import criterion

        objective = criterion(name, self.task, **options).to(self.device).train()
        updates = iter(range(10**6))

        def step() -> None:
            self.clear()
            if hasattr(objective, "begin_update"):
                objective.begin_update(next(updates))
            objective(self.model, self.sample)[0].backward()

        return step


def report(layer: OutputLayer, variants: Sequence[str], repeats: int) -> list[dict[str, object]]:
    """Measures every variant at one size, and prints its row."""
    vocabulary, positions, features, dtype, device = layer.case
    reasons = {peer: why_not(peer, device, dtype) for peer in PEERS}
    wanted = [BASE, FLOOR, *(variant for variant in variants if variant not in (BASE, FLOOR))]
    times = interleaved({v: layer.step(v) for v in wanted if not reasons.get(v)}, repeats, device)
    layer.clear()
    found: list[dict[str, object]] = []
    for variant in wanted:
        case = {"variant": variant, "V": vocabulary, "N": positions, "D": features, "dtype": dtype, "device": device}
        if variant in times:
            milliseconds, ratio = 1000 * times[variant][0], times[variant][1]
            case |= {"ms": milliseconds, "time_ratio": ratio, "floor_ratio": ratio / times[FLOOR][1]}
            case |= {"mib": memory(variant, layer), "not_gradients_mib": None}
            case["not_gradients_mib"] = case["mib"] - layer.gradients_mib()
            case["memory_ratio"] = case["mib"] / (found[0]["mib"] if found else case["mib"])
        found.append(case)
        print(row(cells(case, reasons.get(variant))), flush=True)
    return found


def cells(case: dict[str, Any], reason: str | None) -> list[str]:
    """A row of the table; `reason` says why it has no numbers."""
    head = [f"{case['V']:,}", f"{case['N']:,}", case["variant"]]
    if reason:
        return [*head, reason, *[""] * 5]
    times = [f"{case['ms']:,.0f}" if case["ms"] >= 10 else f"{case['ms']:.2f}"]
    times += [f"{case['time_ratio']:.2f}", f"{case['floor_ratio']:.2f}"]
    return [*head, *times, f"{case['mib']:,.0f}", f"{case['memory_ratio']:.2f}", f"{case['not_gradients_mib']:,.0f}"]


def memory(variant: str, layer: OutputLayer) -> float:
    """The peak of one variant, in MiB, in a process of its own."""
    vocabulary, positions, features, dtype, device = layer.case
    sizes = ("--features", str(features), "--dtype", dtype)
    case = ("--memory", variant, str(vocabulary), str(positions), device)
    return run_alone("benchmarks.criterion", *sizes, *case, environment=RETURN_FREED_MEMORY)["mib"]


def literal(features: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """The paper's own form of the loss, with gates of the same kind."""
    from agg_fairseq.functional import agg_gates, naive_gated_cross_entropy, rare_tokens

    counts = torch.bincount(target, minlength=len(weight))
    gates = agg_gates(counts, 1, rare_tokens(counts, 1, rare_fraction=RARE_FRACTION))
    return naive_gated_cross_entropy(features, weight, target, gates=gates)


if __name__ == "__main__":
    main()
