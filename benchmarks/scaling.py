"""Growth of the cost of gated cross-entropy with N, V and D, and of the token counter with its window K.

    python -m benchmarks.scaling [--device cpu|cuda] [--plot FILE.png] [--json FILE]

The operation: forward and backward of `gated_cross_entropy` with the gates of `agg`, one size varied at a time around
N = 1,024, V = 16,384, D = 512 (on a GPU around 16,384, 44,256, 1,024 in bfloat16), compared with the three bare
products of the same sizes. Their 6·N·V·D operations divided by their time is the speed of the machine, `GFLOP/s`.

The counter: one update over a full window of K, 4,096 tokens under Zipf's law over V = 44,256: the tokens added, the
update committed, the oldest one dropped. Each K has a counter of its own, and all take turns.

At each size the bare products and the operation take turns for `--repeats` rounds, the counters for twenty times as
many; times are medians over rounds, and ratios medians of the ratios within a round. `copies` is the rate at which the
machine reads and writes memory in a copy.
"""

import argparse
import functools
import json
from typing import Any, NamedTuple

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
    zipf,
)

CENTER = {"cpu": (1024, 16_384, 512), "cuda": (16_384, 44_256, 1024)}
FACTORS = (0.25, 0.5, 1, 2, 4)
DTYPE = {"cpu": torch.float32, "cuda": torch.bfloat16}
WINDOWS = (10, 100, 1000, 10_000, 30_000)
COUNTED = (44_256, 4096)  # V, tokens of an update
RARE_FRACTION = 0.2


class Case(NamedTuple):
    """Sizes of the operation."""

    N: int
    V: int
    D: int


def main() -> None:
    """Measures all sizes, prints two tables per device, and draws them."""
    options = parser().parse_args()
    if options.memory:
        case, device = Case(*map(int, options.memory[:3])), options.memory[3]
        step, clear = steps(case, device)["agg"]
        print(json.dumps({"mib": peak_mib(step, clear, device)}))
        return
    results: dict[str, Any] = {"operation": [], "counter": [], "machines": []}
    for device in devices(options.device):
        results["machines"].append(machine(device))
        rate = bytes_per_second(device, options.repeats) / 1e9
        print(f"\n{machine(device)}, {str(DTYPE[device])[6:]}, median of {options.repeats}; copies {rate:,.1f} GB/s\n")
        results["operation"] += operation_rows(device, options.repeats)
        results["counter"] += counter_rows(device, options.repeats)
    if options.json:
        from agg_fairseq.files import write_json

        write_json(options.json, results)
    if options.plot:
        draw(results, options.plot)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", help="cpu or cuda (default: cpu, and cuda where there is one)")
    made.add_argument("--repeats", type=int, default=5, help="timed rounds (default: 5)")
    made.add_argument("--plot", metavar="FILE", help="draw the growth, of the first device")
    made.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    made.add_argument("--memory", nargs=4, metavar=("N", "V", "D", "DEVICE"), help=argparse.SUPPRESS)
    return made


def bytes_per_second(device: str, repeats: int) -> float:
    """Bytes read and written per second in a copy of 256 MiB."""
    source = torch.zeros(2**26, device=device)
    target = torch.empty_like(source)
    times = interleaved({"copy": lambda: target.copy_(source)}, repeats, device)
    return 2 * source.nbytes / times["copy"][0]


def operation_rows(device: str, repeats: int) -> list[dict[str, Any]]:
    """A row for each size."""
    print("| varied | N | V | D | agg [ms] | × three products | GFLOP/s | peak [MiB] | less gradients [MiB] |")
    print("|:--|--:|--:|--:|--:|--:|--:|--:|--:|")
    results = []
    for varied in Case._fields:
        for factor in FACTORS:
            center = Case(*CENTER[device])
            case = center._replace(**{varied: int(getattr(center, varied) * factor)})
            times = interleaved({name: step for name, (step, _) in steps(case, device).items()}, repeats, device)
            products, agg = times["three products"][0], times["agg"]
            memory = run_alone(
                "benchmarks.scaling", "--memory", *map(str, case), device, environment=RETURN_FREED_MEMORY
            )["mib"]
            itemsize = torch.empty(0, dtype=DTYPE[device]).element_size()
            beyond = memory - (case.N + case.V) * case.D * itemsize / 2**20
            speed = 6 * case.N * case.V * case.D / products / 1e9
            cells = [varied, *(f"{size:,}" for size in case), f"{1000 * agg[0]:,.1f}", f"{agg[1]:.2f}"]
            print(row([*cells, f"{speed:,.0f}", f"{memory:,.0f}", f"{beyond:,.0f}"]), flush=True)
            results.append(
                {"varied": varied, **case._asdict(), "device": device, "ms": 1000 * agg[0], "floor_ratio": agg[1]}
                | {"floor_ms": 1000 * products, "gflops": speed, "mib": memory, "not_gradients_mib": beyond}
            )
    return results


def steps(case: Case, device: str) -> dict[str, tuple[Step, Step]]:
    """The bare products and the operation with the gates of `agg`, each with a function that clears its gradients."""
    from agg_fairseq.functional import agg_gates, gated_cross_entropy, rare_tokens

    torch.manual_seed(0)
    h = torch.randn(case.N, case.D, device=device, dtype=DTYPE[device]).requires_grad_()
    w = (torch.randn(case.V, case.D, device=device) * case.D**-0.5).to(DTYPE[device]).requires_grad_()
    y = zipf(case.V, case.N).to(device)
    counts = torch.bincount(y, minlength=case.V)
    gates = agg_gates(counts, 1, rare_tokens(counts, 1, rare_fraction=RARE_FRACTION))

    def clear() -> None:
        h.grad = w.grad = None

    def agg() -> None:
        clear()
        gated_cross_entropy(h, w, y, gates=gates).loss.backward()

    return {"three products": (bare_products(h, w), clear), "agg": (agg, clear)}


def counter_rows(device: str, repeats: int) -> list[dict[str, Any]]:
    """A row for each window."""
    vocabulary, tokens = COUNTED
    updates = {window: functools.partial(update, *filled_counter(window, device)) for window in WINDOWS}
    times = interleaved({str(window): step for window, step in updates.items()}, 20 * repeats, device)
    print(f"\n| K | update of {tokens:,} tokens, V = {vocabulary:,} [ms] | × K = {WINDOWS[0]} | window [MiB] |")
    print("|--:|--:|--:|--:|")
    results = []
    for window, step in updates.items():
        seconds, ratio = times[str(window)]
        counter = step.args[0]
        mib = sum(t.nbytes for t in counter.get_extra_state().values() if isinstance(t, Tensor)) / 2**20
        print(row((f"{window:,}", f"{1000 * seconds:.3f}", f"{ratio:.2f}", f"{mib:,.1f}")), flush=True)
        results.append({"K": window, "device": device, "ms": 1000 * seconds, "ratio": ratio, "mib": mib})
    return results


def filled_counter(window: int, device: str) -> tuple[Any, list[Tensor]]:
    """A counter whose window is full, and the updates that it is given in turn."""
    from agg_fairseq.modules import TokenCounter

    vocabulary, tokens = COUNTED
    torch.manual_seed(0)
    batches = [zipf(vocabulary, tokens).to(device) for _ in range(8)]
    counter = TokenCounter(vocabulary, window).to(device)
    for number in range(window + 1):
        update(counter, batches, number)
    return counter, batches


def update(counter: Any, batches: list[Tensor], number: int = 0) -> None:
    """One update of the counter."""
    counter.add(batches[number % len(batches)])
    counter.commit()


def draw(results: dict[str, Any], path: str) -> None:
    """Four panels: time of the operation and of the bare products over N, V and D, and of the counter over K."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(13, 3.2), constrained_layout=True)
    device = results["operation"][0]["device"]
    for axis, varied in zip(axes, Case._fields, strict=False):
        rows = [r for r in results["operation"] if (r["varied"], r["device"]) == (varied, device)]
        sizes = [r[varied] for r in rows]
        axis.plot(sizes, [r["ms"] for r in rows], "o-", color="#1b5e9b", label="agg")
        axis.plot(sizes, [r["floor_ms"] for r in rows], "s--", color="#c8551b", label="three bare products")
        _logarithmic(axis, varied, sizes, "ms" if varied == "N" else None)
    rows = [r for r in results["counter"] if r["device"] == device]
    axes[3].plot([r["K"] for r in rows], [r["ms"] for r in rows], "o-", color="#1b5e9b", label="one update")
    _logarithmic(axes[3], "K", [r["K"] for r in rows], "ms, token counter")
    axes[3].set_yscale("linear")
    axes[3].set_ylim(0, 1.5 * max(r["ms"] for r in rows))
    axes[0].legend(frameon=False)
    axes[3].legend(frameon=False)
    figure.savefig(path, dpi=150)


def _logarithmic(axis: Any, name: str, sizes: list[int], unit: str | None) -> None:
    axis.set_xscale("log", base=2 if name != "K" else 10)
    axis.set_yscale("log", base=2)
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
    axis.minorticks_off()
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xlabel(name)
    axis.set_ylabel(unit or "")
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
