"""Time and peak memory of the criterions, forward and backward, beside fairseq's own.

    python -m benchmarks.criterion [--device cpu|cuda] [--json FILE]

Every variant runs in a process of its own, in turn. `cross_entropy` is fairseq's criterion; the named criterions are
ours, with counters and candidates included; `three logits` is the paper's Eqs. 9–10 in plain autograd; `three products`
is the floor: the bare matrix products of any softmax layer, without a softmax. Peak memory counts what is allocated
beyond the features and the output embedding, their gradients included.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence

import torch

from .measuring import RETURN_FREED_MEMORY, devices, machine, peak_mib, run_alone, seconds, size

FEATURES = 512
SIZES = [(8_000, 1024), (8_000, 4096), (44_256, 1024), (44_256, 4096)]  # V, N
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
VARIANTS = (*CRITERIONS, "three logits", "three products")


def main() -> None:
    """Runs all variants and prints a table per device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="cpu or cuda (default: cpu, and cuda where there is one)")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs, of which the median counts (default: 5)")
    parser.add_argument("--variants", nargs="+", default=VARIANTS, choices=VARIANTS, metavar="V", help="default: all")
    parser.add_argument(
        "--sizes", nargs="+", type=size, default=SIZES, metavar="V,N", help="vocabulary and positions (default: four)"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--one", nargs=4, metavar=("VARIANT", "V", "N", "DEVICE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        variant, vocabulary, positions, device = arguments.one
        print(json.dumps(measure(variant, int(vocabulary), int(positions), device, arguments.repeats)))
        return
    results, places = [], devices(arguments.device)
    for device in places:
        print(f"\n{machine(device)}, D = {FEATURES}, median of {arguments.repeats}\n")
        print("| V | N | variant | time [ms] | × cross_entropy | peak [MiB] | × cross_entropy |")
        print("|--:|--:|:--------|----------:|----------------:|-----------:|----------------:|")
        for vocabulary, positions in arguments.sizes:
            results += report(vocabulary, positions, device, arguments.repeats, arguments.variants)
    if arguments.json:
        from agg_fairseq.files import write_json

        write_json(arguments.json, {"results": results, "machines": [machine(device) for device in places]})


def report(
    vocabulary: int, positions: int, device: str, repeats: int, variants: Sequence[str]
) -> list[dict[str, object]]:
    """Measures every variant at one size in a process each, and prints its row."""
    rows: list[dict[str, object]] = []
    for variant in ("cross_entropy", *(variant for variant in variants if variant != "cross_entropy")):
        case = (variant, vocabulary, positions, device)
        row = {"ms": alone(*case, repeats)["ms"], "mib": alone(*case, 1, RETURN_FREED_MEMORY)["mib"]}
        rows.append({"variant": variant, "V": vocabulary, "N": positions, "device": device, **row})
        base = rows[0]
        print(
            f"| {vocabulary:,} | {positions:,} | {variant} | {row['ms']:,.0f} | {row['ms'] / base['ms']:.2f} "
            f"| {row['mib']:,.0f} | {row['mib'] / base['mib']:.2f} |",
            flush=True,
        )
    return rows


def alone(
    variant: str, vocabulary: int, positions: int, device: str, repeats: int, environment: dict[str, str] | None = None
) -> dict[str, float]:
    """`measure` in a process of its own."""
    case = ("--one", variant, str(vocabulary), str(positions), device)
    return run_alone("benchmarks.criterion", "--repeats", str(repeats), *case, environment=environment)


def measure(variant: str, vocabulary: int, positions: int, device: str, repeats: int) -> dict[str, float]:
    """Median milliseconds and peak mebibytes of forward plus backward."""
    step, clear = build(variant, vocabulary, positions, device)
    peak = peak_mib(step, clear, device)
    times = [seconds(step, device) for _ in range(repeats)]
    return {"ms": 1000 * statistics.median(times), "mib": peak}


def build(variant: str, vocabulary: int, positions: int, device: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Two functions: one runs a forward and backward of the variant, the other drops the gradients."""
    from benchmarks.output_layer_model import OutputLayerModel, OutputLayerTask, batch, criterion

    torch.manual_seed(0)
    task = OutputLayerTask(vocabulary)
    model = OutputLayerModel(FEATURES, vocabulary).to(device)
    sample = batch(positions, FEATURES, vocabulary, device)
    features, weight = sample["net_input"]["features"], model.decoder.output_projection.weight

    def clear() -> None:
        features.grad = weight.grad = None

    if variant == "three products":

        def products() -> None:
            with torch.no_grad():
                flat = features.flatten(0, 1)
                logits = flat @ weight.t()
                logits @ weight
                logits.t() @ flat

        return products, clear
    if variant == "three logits":
        return (lambda: (clear(), literal(features, weight, sample["target"]).backward())), clear
    name, options = CRITERIONS[variant]
    objective = criterion(name, task, **options).to(device)
    objective.train()
    updates = iter(range(10**6))

    def train_step() -> None:
        clear()
        if hasattr(objective, "on_train_step"):
            objective.on_train_step(next(updates), False)
        objective(model, sample)[0].backward()

    return train_step, clear


def literal(features: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The paper's own form of the loss, with gates of the same kind."""
    from agg_fairseq.functional import agg_gates, naive_gated_cross_entropy, rare_tokens

    counts = torch.bincount(target.flatten(), minlength=len(weight))
    gates = agg_gates(counts, 1, rare_tokens(counts, 1, rare_fraction=RARE_FRACTION))
    return naive_gated_cross_entropy(features, weight, target, gates=gates)


if __name__ == "__main__":
    main()
