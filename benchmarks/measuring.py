"""Shared by the benchmarks: timing in turns, peak memory, processes of their own, the name of the
machine, and the command line of those that compare training steps."""

import argparse
import gc
import logging
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor

from agg_fairseq.files import write_json

Step = Callable[[], object]
Case = tuple[int, int, int]  # V, N and D
STEPS_IN_A_ROW = 6
DTYPES = {"cpu": "float32", "cuda": "bfloat16"}


@dataclass
class Variants:
    """What a benchmark compares at one size."""

    steps: dict[str, Step | str]  # a forward and backward pass, or why there is none
    trained: list[Tensor]  # features, output embedding, and what only some variants have

    def clear(self) -> None:
        """Drops the gradients."""
        for tensor in self.trained:
            tensor.grad = None

    def timed(self, name: str) -> Step:
        """A forward and backward pass that drops the gradients first."""
        forward_and_backward = self.steps[name]

        def step() -> None:
            self.clear()
            forward_and_backward()

        return step


Build = Callable[[Case, torch.dtype, str], Variants]
"""Of a size, a dtype and a device."""


def compare(
    description: str, sizes: Mapping[str, Sequence[Case]], build: Build, floor: str
) -> None:
    """The command line of a benchmark, with a table for each device.

    Time and memory are compared with the first variant, and time with that of `floor` too.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="cpu or cuda (default: cpu, and cuda where there is one)")
    parser.add_argument("--dtype", help="default: float32, on a GPU bfloat16")
    parser.add_argument("--repeats", type=int, default=5, help="timed rounds (default: 5)")
    parser.add_argument("--variants", nargs="+", metavar="VARIANT", help="default: all")
    parser.add_argument(
        "--sizes", nargs="+", type=size, metavar="V,N,D", help="vocabulary, positions and features"
    )
    parser.add_argument("--profile", action="store_true", help="print the kernels of mle on a GPU")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if options.device:
        devices = [options.device]
    results: list[dict[str, Any]] = []
    for device in devices:
        dtype = options.dtype or DTYPES[device]
        titles = ["variant", "time [ms]", "× cross_entropy", f"× {floor}", "behind a model [ms]"]
        titles += ["peak [MiB]", "× cross_entropy", "less gradients [MiB]"]
        print(f"\n{machine(device)}, {dtype}, median of {options.repeats}\n")
        print(f"{row(['V', 'N', 'D', *titles])}\n|--:|--:|--:|:--|{'--:|' * (len(titles) - 1)}")
        for case in options.sizes or sizes[device]:
            given = build, case, getattr(torch, dtype), device
            if device == "cpu":
                with new_processes(1) as pool:
                    peaks = pool.submit(peaks_mib, *given, options.variants, floor).result()
            else:
                peaks = peaks_mib(*given, options.variants, floor)
                free(device)
            variants = build(*given[1:])
            for result in report(case, variants, peaks, floor, options.repeats, device):
                results.append({"dtype": dtype, "device": device, **result})
            if options.profile and device != "cpu":
                print(f"\n{kernels(variants.timed('mle'))}\n")
            del variants
            free(device)
    if options.json:
        machines = [machine(device) for device in devices]
        write_json(options.json, {"results": results, "machines": machines})


def peaks_mib(
    build: Build, case: Case, dtype: torch.dtype, device: str, names: list[str] | None, floor: str
) -> dict[str, float | str]:
    """The peak memory of variants, or why they are not run; the first and `floor` are always."""
    variants = build(case, dtype, device)
    first, *_ = variants.steps
    peaks: dict[str, float | str] = {}
    for name in dict.fromkeys([first, floor, *(names or variants.steps)]):
        reason = variants.steps[name]
        if isinstance(reason, str):
            peaks[name] = reason
            continue
        try:
            peaks[name] = peak_mib(variants.timed(name), variants.clear, device)
        except torch.OutOfMemoryError:
            peaks[name] = "out of memory"
    return peaks


def report(
    case: Case,
    variants: Variants,
    peaks: dict[str, float | str],
    floor: str,
    repeats: int,
    device: str,
) -> list[dict[str, Any]]:
    """Measures the times of variants, prints a row for each, and returns their numbers."""
    mibs = {name: peak for name, peak in peaks.items() if not isinstance(peak, str)}
    steps = {name: variants.timed(name) for name in mibs}
    times = interleaved(steps, repeats, device)
    behind = {} if device == "cpu" else behind_a_model(steps, repeats, device)
    variants.clear()
    gradients = sum(tensor.nbytes for tensor in variants.trained[:2]) / 2**20
    results = []
    for name, peak in peaks.items():
        result: dict[str, Any] = {"variant": name, **dict(zip("VND", case, strict=True))}
        cells = [*(f"{number:,}" for number in case), name]
        if isinstance(peak, str):
            cells += [f"not run: {peak}", *[""] * 6]
        else:
            seconds, ratio = times[name]
            result |= {"ms": 1000 * seconds, "time_ratio": ratio, "mib": peak}
            result |= {"floor_ratio": ratio / times[floor][1]}
            result |= {"memory_ratio": peak / next(iter(mibs.values()))}
            result |= {"not_gradients_mib": peak - gradients}
            digits = 0 if seconds >= 0.01 else 2
            cells += [
                f"{1000 * seconds:,.{digits}f}",
                f"{ratio:.2f}",
                f"{result['floor_ratio']:.2f}",
            ]
            if behind:
                result["behind_ms"] = 1000 * behind[name]
            cells.append(f"{result['behind_ms']:.2f}" if behind else "")
            cells += [f"{peak:,.0f}", f"{result['memory_ratio']:.2f}"]
            cells.append(f"{result['not_gradients_mib']:,.0f}")
        print(row(cells), flush=True)
        results.append(result)
    return results


def size(text: str) -> Case:
    """V, N and D from "8000,1024,512"; N is a multiple of 512, the steps of a sequence."""
    vocabulary, positions, features = (int(number) for number in text.split(","))
    if positions % 512:
        raise ValueError(f"expected a multiple of 512 positions, got {positions}")
    return vocabulary, positions, features


def machine(device: str) -> str:
    """Name of the processor or GPU, number of threads, and version of torch."""
    if device != "cpu":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    with open("/proc/cpuinfo") as file:
        model = next(
            (line.split(":")[1].strip() for line in file if line.startswith("model name")),
            platform.machine(),
        )
    return f"{model}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def new_processes(number: int) -> ProcessPoolExecutor:
    """Processes in which glibc returns freed memory to the system: in a process that is warm, that
    would otherwise hide the peak."""
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    disable_info = {"initializer": logging.disable, "initargs": (logging.INFO,)}
    return ProcessPoolExecutor(number, get_context("spawn"), **disable_info)


def seconds(step: Step, device: str) -> float:
    """The time of a step, in seconds; on a GPU the mean of some that follow each other, as in a
    training, where the host prepares one while the GPU computes the last."""
    if device == "cpu":
        started = time.perf_counter()
        step()
        return time.perf_counter() - started
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    torch.cuda.synchronize()
    events[0].record()
    for _ in range(STEPS_IN_A_ROW):
        step()
    events[1].record()
    torch.cuda.synchronize()
    return events[0].elapsed_time(events[1]) / 1000 / STEPS_IN_A_ROW


def interleaved(
    steps: Mapping[str, Step], repeats: int, device: str
) -> dict[str, tuple[float, float]]:
    """The median time of every step in seconds, and the median of its ratio to the first step of
    the same round.

    In each round every step runs once, so that a slow moment of the machine affects all of them.
    """
    for step in steps.values():
        step()
    rounds = [{name: seconds(step, device) for name, step in steps.items()} for _ in range(repeats)]
    base = next(iter(steps))
    return {
        name: (
            statistics.median(times[name] for times in rounds),
            statistics.median(times[name] / times[base] for times in rounds),
        )
        for name in steps
    }


class Pause:
    """Keeps a GPU busy in place of the layers of a model."""

    cycles = 0

    def __call__(self) -> None:
        """Returns at once; the GPU is busy for so many cycles."""
        if self.cycles:
            torch.cuda._sleep(self.cycles)


pause = Pause()


def behind_a_model(steps: Mapping[str, Step], repeats: int, device: str) -> dict[str, float]:
    """The median time of every step on a GPU in seconds, where it has about 5 ms of other work
    before the loss, as in a training; without that work."""
    pause.cycles = 10**7
    try:
        times = interleaved({"pause": pause, **steps}, repeats, device)
    finally:
        pause.cycles = 0
    return {name: times[name][0] - times["pause"][0] for name in steps}


def peak_mib(step: Step, clear: Step, device: str) -> float:
    """What a step allocates at its peak, in MiB. The step is run once before, and its gradients are
    cleared."""
    step()
    clear()
    free(device)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() / 2**20 - before / 2**20
    return cpu_peak_mib(step)


def cpu_peak_mib(call: Step) -> float:
    """What a call allocates at its peak, in MiB, on the CPU."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets VmHWM, the peak of VmRSS
    before = status_mib("VmRSS")
    call()
    return status_mib("VmHWM") - before


def zipf(vocabulary: int, tokens: int) -> Tensor:
    """Random tokens (tokens,) in [4, V), that is without fairseq's special ones, under Zipf's
    law."""
    ranks = torch.arange(1, vocabulary - 3, dtype=torch.float64)
    return torch.multinomial(1 / ranks, tokens, replacement=True) + 4


def row(cells: Sequence[object]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def free(device: str) -> None:
    """Returns what no tensor holds any more to the device."""
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


def kernels(step: Step) -> str:
    """A table of the kernels that a step on a GPU runs longest."""
    with torch.profiler.profile() as profile:
        step()
        torch.cuda.synchronize()
    averages = profile.key_averages()
    return averages.table(sort_by="cuda_time_total", row_limit=16, max_name_column_width=60)


def status_mib(name: str) -> float:
    """A field of /proc/self/status that is in kB, in MiB."""
    with open("/proc/self/status") as file:
        return next(float(line.split()[1]) for line in file if line.startswith(name)) / 1024
