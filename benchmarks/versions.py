"""CPU time of the losses of this checkout and of another one, in turns in one process.

    python -m benchmarks.versions ../OTHER [--sizes V,N,D …] [--repeats 4]

In each round every loss of both runs once, forward and backward; a number is the median of the
ratios within the rounds: to fairseq's loss in plain PyTorch (log_softmax, nll_loss), and to the
other checkout. Targets follow Zipf's law. OMP_NUM_THREADS=1 makes CPU seconds comparable.
"""

import argparse
import importlib
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from .measuring import Step, machine, row, size, zipf

SIZES = [(8_000, 4096, 512), (44_256, 1024, 512), (267_744, 1024, 256)]
STEPS = 256  # of a sequence


def losses(checkout: Path, vocabulary: int) -> dict[str, tuple[Any, Any]]:
    """The rule and the loss of each method of a checkout, which is imported anew."""
    for name in [name for name in sys.modules if name.startswith("agg_fairseq")]:
        del sys.modules[name]
    sys.path.insert(0, str(checkout))
    gating = importlib.import_module("agg_fairseq.gating")
    functional = importlib.import_module("agg_fairseq.functional")
    sys.path.pop(0)
    if not Path(gating.__file__).is_relative_to(checkout):
        raise SystemExit(f"{checkout}: found no agg_fairseq.gating")
    counts = (1e8 / torch.arange(1, vocabulary + 1)).long()
    none, loss = gating.Gating(vocabulary), functional.TrainingLoss
    agps = gating.AgpsGating(vocabulary, rare_rank=vocabulary // 2, counts=counts)
    return {
        "mle": (none, loss()),
        "agg": (gating.AggGating(vocabulary, rare_fraction=0.2, window=100), loss()),
        "agps": (agps, loss()),
        "cosreg": (none, loss(cosreg_gamma=1.0)),
        "unlikelihood": (none, loss(ul_alpha=1.0)),
        "adversarial": (none, loss(adv_epsilon=0.005)),
    }


def compare(other: Path, vocabulary: int, number: int, width: int, repeats: int) -> None:
    """Prints the table of a size."""
    torch.manual_seed(0)
    features = torch.randn(number // STEPS, STEPS, width, requires_grad=True)
    weight = torch.nn.Parameter(torch.randn(vocabulary, width) * width**-0.5)
    target = zipf(vocabulary, number).view(number // STEPS, STEPS)

    def plain() -> None:
        log_p = F.linear(features, weight).view(-1, vocabulary).log_softmax(-1)
        (F.nll_loss(log_p, target.flatten(), reduction="sum") / number).backward()

    def step(gating: Any, loss: Any) -> None:
        output = loss(features, weight, target, gates=gating(target), denominator=number)
        (output.loss / number).backward()
        gating.commit_update()

    steps: dict[tuple[str, str], Step] = {("", "cross_entropy"): plain}
    for version, checkout in (("this", Path(__file__).resolve().parents[1]), ("other", other)):
        for name, parts in losses(checkout, vocabulary).items():
            steps[version, name] = partial(step, *parts)
    times: dict[tuple[str, str], list[float]] = {key: [] for key in steps}
    for _ in range(1 + repeats):  # the first round warms up
        for key, one in steps.items():
            features.grad = weight.grad = None
            before = time.process_time()
            one()
            times[key].append(time.process_time() - before)

    def ratio(first: tuple[str, str], second: tuple[str, str]) -> str:
        pairs = zip(times[first][1:], times[second][1:], strict=True)
        return f"{statistics.median(one / another for one, another in pairs):.2f}"

    print(f"\nV = {vocabulary:,}, N = {number:,}, D = {width}\n")
    print("| | / cross_entropy | other / cross_entropy | / other |\n|:--|--:|--:|--:|")
    for version, name in steps:
        if version == "this":
            here, there, base = (version, name), ("other", name), ("", "cross_entropy")
            print(row([name, ratio(here, base), ratio(there, base), ratio(here, there)]))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path)
    parser.add_argument("--sizes", nargs="+", type=size, metavar="V,N,D", default=SIZES)
    parser.add_argument("--repeats", type=int, default=4)
    options = parser.parse_args()
    print(f"{machine('cpu')}, CPU time, {options.repeats} rounds")
    for vocabulary, number, width in options.sizes:
        compare(options.other.resolve(), vocabulary, number, width, options.repeats)


if __name__ == "__main__":
    main()
