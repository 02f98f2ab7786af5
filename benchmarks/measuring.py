"""Shared by the benchmarks: timing in turns, peak memory, processes of their own, and the name of
the machine."""

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Step = Callable[[], object]
STEPS_IN_A_ROW = 6

RETURN_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""Makes glibc return freed memory to the system, which otherwise would hide the peak of a process
that is warm."""


def size(text: str) -> tuple[int, int, int]:
    """V, N and D from "8000,1024,512"; N is a multiple of 512, the steps of a sequence."""
    vocabulary, positions, features = (int(number) for number in text.split(","))
    if positions % 512:
        raise ValueError(f"expected a multiple of 512 positions, got {positions}")
    return vocabulary, positions, features


def devices(asked: str | None) -> list[str]:
    """The device that was asked for; by default the CPU, and the GPU if there is one."""
    return [asked] if asked else ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


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


def run_alone(module: str, *arguments: str, environment: dict[str, str] | None = None) -> Any:
    """Runs a module in a process of its own, and returns the last line of its output, parsed as
    JSON."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    return json.loads(done.stdout.splitlines()[-1])


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
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets VmHWM, the peak of VmRSS
    before = status_mib("VmRSS")
    step()
    return status_mib("VmHWM") - before


def zipf(vocabulary: int, tokens: int) -> Tensor:
    """Random tokens (tokens,) in [4, V), that is without fairseq's special ones, under Zipf's
    law."""
    ranks = torch.arange(1, vocabulary - 3, dtype=torch.float64)
    return torch.multinomial(1 / ranks, tokens, replacement=True) + 4


def bare_products(features: Tensor, weight: Tensor) -> Step:
    """The three matrix products of (N, D) and (V, D) that any softmax layer needs, without a
    softmax."""

    @torch.no_grad()
    def step() -> None:
        pause()
        logits = features @ weight.t()
        logits @ weight
        logits.t() @ features

    return step


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
