"""Cost of the factorized output layer (F²-Softmax) compared with the full softmax, in training and in generation.

    python -m benchmarks.f2_softmax [--data DATA] [--device cpu|cuda] [--json FILE]

Training: time and peak memory of the output layer's forward and backward, with gradients of features and weights,
compared with fairseq's `cross_entropy` on the same features. Targets are drawn from the token frequencies, which also
determine the classes, and the class of the target determines the cost; the column `logits` is the share of the full
softmax's logits that these targets need. `mle` is our criterion on the full softmax. The dictionary is sorted by
frequency after the four special tokens, as fairseq writes it, except for `random order`, as a joined dictionary may be.
Peak memory is what is allocated beyond features and output embeddings, including their gradients.

Generation: time per token of the output layer, `get_normalized_probs` and the top 2·beam of its result, by fairseq's
own `EnsembleModel` and `BeamSearch`, compared with the full softmax, for N hypotheses per step. The features are
random, so that all classes are chosen about equally often, as MefMax's classes of equal mass are in a corpus.

Frequencies: Zipf–Mandelbrot, p ∝ 1/(rank + 2.7), with eos and unk the most frequent and bos and pad never; with
`--data`, those of the training split that `fairseq-preprocess` wrote. All variants run in turn for `--repeats` rounds;
times are medians over rounds, and ratios medians of the ratios within a round. Memory is measured in a process of its
own.
"""

import argparse
import functools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .measuring import RETURN_FREED_MEMORY, Step, devices, interleaved, machine, peak_mib, row, run_alone, size

FEATURES = 512
SIZES = [(8_000, 4096), (30_000, 2048), (44_256, 2048)]  # V, N
CLASSES = (2, 4, 8)
SMOOTHING = 0.1
MANDELBROT = 2.7
CORPUS_TOKENS = 10**8
ROWS = (1, 32, 160)
BEAM = 5
TOKENS_PER_ROUND = 160
"""Steps of fewer rows are repeated with other features, so that different classes are chosen."""

TRAINING_ASKED = {44_256: "≤ 0.50"}
DECODING_ASKED = {"joint": "≤ 1.10", "greedy-class": "< 1.00", "sample-class": "< 1.00"}


class Frequencies(NamedTuple):
    """The number of occurrences of each token of a dictionary, and targets drawn from them."""

    counts: Tensor
    """(V,) int64."""
    target: Tensor
    """(N,) int64 in [0, V)."""

    def shuffled(self) -> "Frequencies":
        """The same tokens in random order, with the same targets."""
        permutation = torch.randperm(len(self.counts))  # V, of each token
        return Frequencies(
            torch.empty_like(self.counts).scatter_(0, permutation, self.counts), permutation[self.target]
        )


class Variant(NamedTuple):
    """A way to train the output layer."""

    step: Step
    """One forward and backward."""
    classes: int | None
    logits: float
    """Logits computed per position, as a share of V."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs all variants and prints two tables per device."""
    options = parser().parse_args(arguments)
    if options.memory:
        vocabulary, positions, device = options.memory
        print(json.dumps(memory(int(vocabulary), int(positions), options.data, device)))
        return
    cases = [(*given, None) for given in options.sizes or ([] if options.data else SIZES)]
    if options.data:
        cases.append((len(corpus_counts(options.data)), options.positions, options.data))
    results: dict[str, list[dict[str, Any]]] = {"training": [], "generation": []}
    places = devices(options.device)
    for device in places:
        print(f"\n{machine(device)}, D = {FEATURES}, median of {options.repeats} rounds\n\nTraining:\n")
        print("| V | N | variant | classes | logits | time [ms] | × cross_entropy | asked | peak [MiB] | × |")
        print("|--:|--:|:--------|--------:|-------:|----------:|----------------:|------:|-----------:|--:|")
        for case in cases:
            results["training"] += training_rows(*case, device, options.repeats)
        print("\nGeneration:\n")
        print("| V | N | variant | classes | time per token [ms] | × full softmax | asked |")
        print("|--:|--:|:--------|--------:|--------------------:|---------------:|------:|")
        for vocabulary, data in dict.fromkeys((vocabulary, data) for vocabulary, _, data in cases):
            for rows in options.rows:
                results["generation"] += generation_rows(vocabulary, rows, data, device, options.repeats)
    if options.json:
        from agg_fairseq.files import write_json

        write_json(options.json, results | {"machines": [machine(device) for device in places]})


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", help="cpu or cuda (default: cpu, and cuda where there is one)")
    made.add_argument("--repeats", type=int, default=5, help="rounds, of which the median counts (default: 5)")
    made.add_argument(
        "--sizes", nargs="+", type=size, metavar="V,N", help="vocabulary and positions (default: three, or --data's)"
    )
    made.add_argument("--rows", nargs="+", type=int, default=ROWS, metavar="N", help="hypotheses of a step")
    made.add_argument("--data", help="folder of fairseq-preprocess, for the frequencies of its training split")
    made.add_argument("--positions", type=int, default=2048, metavar="N", help="with --data (default: 2048)")
    made.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    made.add_argument("--memory", nargs=3, metavar=("V", "N", "DEVICE"), help=argparse.SUPPRESS)
    return made


def training_rows(vocabulary: int, positions: int, data: str | None, device: str, repeats: int) -> list[dict[str, Any]]:
    """Measures every variant of training at one size, and prints a row for each."""
    variants = OutputLayer(vocabulary, positions, data, device).variants()
    times = interleaved({name: variant.step for name, variant in variants.items()}, repeats, device)
    case = (*(["--data", data] if data else []), "--memory", str(vocabulary), str(positions), device)
    peaks = run_alone("benchmarks.f2_softmax", *case, environment=RETURN_FREED_MEMORY)
    results = []
    for name, (_, classes, logits) in variants.items():
        elapsed, ratio = times[name]
        peak_ratio = peaks[name] / peaks["cross_entropy"]
        asked = TRAINING_ASKED.get(vocabulary, "") if name == "f2_softmax" else ""
        cells = (f"{vocabulary:,}", f"{positions:,}", name, classes or "", f"{logits:.3f}", f"{1000 * elapsed:,.0f}")
        print(row((*cells, f"{ratio:.2f}", asked, f"{peaks[name]:,.0f}", f"{peak_ratio:.2f}")), flush=True)
        results.append(
            {
                "variant": name,
                "V": vocabulary,
                "N": positions,
                "device": device,
                "data": data,
                "classes": classes,
                "logits": logits,
                "ms": 1000 * elapsed,
                "time_ratio": ratio,
                "mib": peaks[name],
                "mib_ratio": peak_ratio,
            }
        )
    return results


def memory(vocabulary: int, positions: int, data: str | None, device: str) -> dict[str, float]:
    """Peak memory of every variant of training, in MiB."""
    layer = OutputLayer(vocabulary, positions, data, device)
    return {name: peak_mib(variant.step, layer.clear, device) for name, variant in layer.variants().items()}


class OutputLayer:
    """Features, targets and one output embedding W, with one training step for each variant."""

    def __init__(self, vocabulary: int, positions: int, data: str | None, device: str) -> None:
        from benchmarks.output_layer_model import OutputLayerModel, OutputLayerTask, batch

        torch.manual_seed(0)
        self.vocabulary, self.device, self.task = vocabulary, device, OutputLayerTask(vocabulary)
        self.full = OutputLayerModel(FEATURES, vocabulary).to(device)
        self.weight = self.full.decoder.output_projection.weight
        self.frequencies = frequencies(vocabulary, positions, data)
        self.sample = batch(positions, FEATURES, vocabulary, device, target=self.frequencies.target)
        self.trained = [self.sample["net_input"]["features"], self.weight]

    def clear(self) -> None:
        """Drops the gradients."""
        for tensor in self.trained:
            tensor.grad = None

    def variants(self) -> dict[str, Variant]:
        """All variants of training, `cross_entropy` first."""
        from agg_fairseq.f2.frequency_classes import equal_frequency, mefmax

        usual, random = self.frequencies, self.frequencies.shuffled()
        best, smoothing = mefmax(usual.counts), {"label_smoothing": SMOOTHING}
        by_number = {number: equal_frequency(usual.counts, number) for number in possible(usual.counts)}
        return {
            "cross_entropy": self.ordinary("cross_entropy"),
            "mle": self.ordinary("mle"),
            "f2_softmax": self.factorized(best, usual.target),
            "f2_softmax, random order": self.factorized(mefmax(random.counts), random.target),
            **{f"f2_softmax, equal-frequency {n}": self.factorized(c, usual.target) for n, c in by_number.items()},
            f"f2_softmax, smoothing {SMOOTHING}": self.factorized(best, usual.target, **smoothing),
            f"label_smoothed_cross_entropy, smoothing {SMOOTHING}": self.ordinary(
                "label_smoothed_cross_entropy", **smoothing
            ),
        }

    def ordinary(self, name: str, **options: Any) -> Variant:
        """A criterion on the full softmax."""
        return Variant(self._step(self.full, name, self.frequencies.target, options), None, 1.0)

    def factorized(self, classes: Tensor, target: Tensor, **options: Any) -> Variant:
        """`f2_softmax` with these classes; label smoothing needs the logits of all of them."""
        from benchmarks.output_layer_model import OutputLayerModel

        layer = factorized_layer(classes, self.weight).to(self.device)
        self.trained.append(layer.class_weight)
        model = OutputLayerModel(FEATURES, self.vocabulary, layer)
        share = 1.0 if options else logits_share(classes, target)
        return Variant(self._step(model, "f2_softmax", target, options), layer.classes.number, share)

    def _step(self, model: nn.Module, name: str, target: Tensor, options: dict[str, Any]) -> Step:
        from benchmarks.output_layer_model import criterion

        objective = criterion(name, self.task, **options).to(self.device).train()
        sample = self.sample | {"target": target.view_as(self.sample["target"]).to(self.device)}

        def step() -> None:
            self.clear()
            objective(model, sample)[0].backward()

        return step


def generation_rows(vocabulary: int, rows: int, data: str | None, device: str, repeats: int) -> list[dict[str, Any]]:
    """Measures every way to find the next token for one number of hypotheses, and prints a row for each."""
    layers = generation_layers(vocabulary, data, device)
    features = torch.randn(max(1, TOKENS_PER_ROUND // rows), rows, 1, FEATURES, device=device)
    steps = {name: generation_step(layer, decoding, features) for name, (layer, decoding, _) in layers.items()}
    times = interleaved(steps, repeats, device)
    results = []
    for name, (layer, decoding, asked) in layers.items():
        elapsed, ratio = times[name]
        per_token = 1000 * elapsed / (features.size(0) * rows)
        classes = len(layer.class_weight) if decoding else None
        cells = (f"{vocabulary:,}", f"{rows:,}", name, classes or "", f"{per_token:.3f}", f"{ratio:.2f}", asked)
        print(row(cells), flush=True)
        results.append(
            {
                "variant": name,
                "V": vocabulary,
                "N": rows,
                "device": device,
                "data": data,
                "classes": classes,
                "ms_per_token": per_token,
                "time_ratio": ratio,
            }
        )
    return results


def generation_layers(vocabulary: int, data: str | None, device: str) -> dict[str, tuple[nn.Module, str, str]]:
    """The output layer of each way to find the next token, its `--f2-decoding`, and the highest ratio aimed at."""
    from agg_fairseq.f2.frequency_classes import mefmax

    torch.manual_seed(0)
    full = nn.Linear(FEATURES, vocabulary, bias=False, device=device)
    nn.init.normal_(full.weight, std=FEATURES**-0.5)
    usual = frequencies(vocabulary, 0, data)
    ordered, random = (factorized_layer(mefmax(f.counts), full.weight).to(device) for f in (usual, usual.shuffled()))
    return {
        "full softmax": (full, "", ""),
        **{decoding: (ordered, decoding, asked) for decoding, asked in DECODING_ASKED.items()},
        **{f"{decoding}, random order": (random, decoding, "") for decoding in ("joint", "greedy-class")},
    }


def generation_step(layer: nn.Module, decoding: str, features: Tensor) -> Step:
    """The top 2·BEAM of each hypothesis for features (steps, N, 1, D), as fairseq finds them; to be timed."""
    from fairseq.search import BeamSearch

    from benchmarks.output_layer_model import OutputLayerTask, generating_model

    model, search = generating_model(layer, decoding), BeamSearch(OutputLayerTask(8).target_dictionary)
    scores = features.new_zeros(features.size(1), 1, 1)

    @torch.no_grad()
    def step() -> None:
        for tokens in features:
            log_probs, _ = model.forward_decoder(tokens, [], [{}])
            search.step(1, log_probs[:, None], scores, candidate_multiple=2 * BEAM)

    return step


def factorized_layer(classes: Tensor, weight: nn.Parameter) -> nn.Module:
    """The factorized layer over the same W."""
    from agg_fairseq.f2 import FactorizedSoftmax

    return FactorizedSoftmax(classes, FEATURES, weight)


def frequencies(vocabulary: int, positions: int, data: str | None) -> Frequencies:
    """Counts of the tokens of a dictionary, and `positions` targets."""
    counts = corpus_counts(data) if data else zipf_mandelbrot(vocabulary)
    target = torch.multinomial(counts.double(), positions, replacement=True) if positions else counts[:0]
    return Frequencies(counts, target)


def zipf_mandelbrot(vocabulary: int) -> Tensor:
    """Counts (V,) int64 by rank; 0 for bos and pad."""
    p = 1 / (torch.arange(1, vocabulary - 1, dtype=torch.float64) + MANDELBROT)  # V - 2
    return torch.cat([torch.zeros(2), CORPUS_TOKENS * p / p.sum()]).long()


@functools.cache
def corpus_counts(data: str) -> Tensor:
    """Counts (V,) int64 in the training split of a folder of fairseq-preprocess."""
    from agg_fairseq.data.binarized import count_tokens, load_dictionary

    return count_tokens(data, load_dictionary(data))


def possible(counts: Tensor) -> list[int]:
    """The numbers in CLASSES that equal-frequency can make: no token may have more than the mass of a class."""
    return [number for number in CLASSES if number <= int(counts.sum()) // int(counts.max())]


def logits_share(classes: Tensor, target: Tensor) -> float:
    """Mean logits of a position, as a share of V: the classes, and the tokens of its target's class."""
    sizes = torch.bincount(classes)  # C
    return float((len(sizes) + sizes[classes[target]].double()).mean()) / len(classes)


if __name__ == "__main__":
    main()
