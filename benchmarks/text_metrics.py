"""Time of the measures of generated texts, and of Self-BLEU compared with other implementations, on one core.

    python -m benchmarks.text_metrics [--texts 5000] [--length 100] [--file TEXTS.jsonl] [--json FILE]

The texts are drawn from Zipf–Mandelbrot frequencies over 30,000 tokens, or are the continuations in a file of
`agg-fairseq generate-lm`. The other implementations: `fast-bleu` (C++; `pip install fast-bleu`, skipped where it is
missing), whose values are compared too; and NLTK's `sentence_bleu` of each text against all others, which is quadratic
and therefore measured on the first 100 texts only, next to ours on the same texts. All run in turn for `--repeats`
rounds; times are medians over rounds.
"""

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

import torch

from agg_fairseq.metrics import distinct, kl_divergence, ms_jaccard, repetition, self_bleu, unique_tokens

from .f2_softmax import zipf_mandelbrot
from .measuring import interleaved, machine, row

ORDER = 3
VOCABULARY = 30_000
FEW = 100

Texts = list[list[str]]


def main() -> None:
    """Measures, prints two tables and writes the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=5000, help="how many (default: 5000)")
    parser.add_argument("--length", type=int, default=100, help="tokens of each (default: 100)")
    parser.add_argument("--file", help="texts of agg-fairseq generate-lm instead")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--json", help="also write all numbers to this file")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # fast-bleu would take all cores
    texts, references = _texts(arguments)
    tables = {
        f"{len(texts):,} texts": (_measures(texts, references) | _fast_bleu(texts), texts),
        f"the first {min(FEW, len(texts))} of them": (_quadratic(texts[:FEW]), texts[:FEW]),
    }
    results = [_table(title, steps, of, arguments.repeats) for title, (steps, of) in tables.items()]
    print(f"\n{machine('cpu')}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine("cpu"), "results": results}, file, indent=2)


def _texts(arguments: argparse.Namespace) -> tuple[Texts, Texts]:
    """Texts, and as many references."""
    if arguments.file:
        with open(arguments.file, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return [line["continuation"].split() for line in lines], [line["reference"].split() for line in lines]
    counts = zipf_mandelbrot(VOCABULARY).double()
    drawn = torch.multinomial(counts, 2 * arguments.texts * arguments.length, replacement=True)
    texts = [[str(token) for token in text] for text in drawn.view(2 * arguments.texts, arguments.length).tolist()]
    return texts[: arguments.texts], texts[arguments.texts :]


def _measures(texts: Texts, references: Texts) -> dict[str, Callable[[], Any]]:
    return {
        "Self-BLEU-1..3": lambda: self_bleu(texts, ORDER),
        "KLD": lambda: kl_divergence(texts, references),
        "MS-Jaccard-1..3": lambda: ms_jaccard(texts, references, ORDER),
        "Distinct-1..3": lambda: distinct(texts, ORDER),
        "Repetition": lambda: repetition(texts),
        "Uniq": lambda: unique_tokens(texts),
    }


def _fast_bleu(texts: Texts) -> dict[str, Callable[[], Any]]:
    try:
        from fast_bleu import SelfBLEU
    except ImportError:
        return {}
    weights = {order: (1 / order,) * order for order in range(2, ORDER + 1)}  # it has no order 1

    def measure() -> list[float]:
        scores = SelfBLEU(texts, weights).get_score()
        return [sum(scores[order]) / len(texts) for order in weights]

    return {"Self-BLEU-2..3, fast-bleu": measure}


def _quadratic(texts: Texts) -> dict[str, Callable[[], Any]]:
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    smoothing = SmoothingFunction().method1

    def score(order: int) -> float:
        weights = (1 / order,) * order
        others = [texts[:index] + texts[index + 1 :] for index in range(len(texts))]
        scores = [sentence_bleu(o, text, weights, smoothing) for o, text in zip(others, texts, strict=True)]
        return sum(scores) / len(texts)

    return {
        "Self-BLEU-1..3": lambda: self_bleu(texts, ORDER),
        "Self-BLEU-1..3, NLTK": lambda: [score(order) for order in range(1, ORDER + 1)],
    } | _fast_bleu(texts)


def _table(title: str, steps: dict[str, Callable[[], Any]], texts: Texts, repeats: int) -> dict[str, Any]:
    """Prints the times of the steps, their ratios to our Self-BLEU, and the values of Self-BLEU."""
    times = interleaved(steps, repeats, "cpu")
    values = {name: step() for name, step in steps.items() if name.startswith("Self-BLEU")}
    print(f"\n{title}, {sum(map(len, texts)):,} tokens\n")
    print(row(["measure", "time [s]", "× our Self-BLEU", "value"]))
    print(row([":--", "--:", "--:", "--:"]))
    for name, (seconds, ratio) in times.items():
        print(row([name, f"{seconds:.3f}", f"{ratio:.2f}", ", ".join(f"{v:.6f}" for v in values.get(name, ()))]))
    return {"texts": title, "seconds": times, "values": values}


if __name__ == "__main__":
    main()
