"""Prints how many of seven measures of greedy texts each model wins and loses (Choi et al. 2020,
Table 9).

    python scripts/wikitext103/f2_table_9.py RUNS ROW …

The measures are PPL, KLD, MSJ-3, SB-3, Dist-3, Rep and Uniq, in RUNS/ROW/{ppl,greedy}.json. The
paper does not say which n-grams it compares: with trigrams, its Table 2 gives all ten results of
its Table 9 (a), with bigrams or means it does not.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from agg_fairseq.columns import METRICS
from agg_fairseq.names import HUMAN
from agg_fairseq.result import Result, format_table

COMPARED = (
    ("kld", ""), ("ms_jaccard", "3"), ("self_bleu", "3"), ("distinct", "3"), ("repetition", ""), ("unique_tokens", ""),
)  # fmt: skip


def wins(
    first: Mapping[str, float], second: Mapping[str, float], human: Mapping[str, float]
) -> int:
    """The number of measures in which the first model is better than the second."""
    distances = {name: METRICS[name].distance(human.get(name)) for name in first}
    return sum(
        distance(first[name]) < distance(second[name]) for name, distance in distances.items()
    )


def main(runs: Path, rows: list[str]) -> None:
    """Prints the table, `won-lost`."""
    values = {}
    for row in rows:
        ppl, texts = (Result.read(runs / row / f"{name}.json") for name in ("ppl", "greedy"))
        values[row] = {metric: texts.value(row, metric, key) for metric, key in COMPARED}
        values[row]["perplexity"] = ppl.value(row, "perplexity", "total")
        human = {metric: texts.value(HUMAN, metric, key) for metric, key in COMPARED}

    def cell(row: str, other: str) -> str | None:
        first, second = values[row], values[other]
        return (
            None if row == other else f"{wins(first, second, human)}-{wins(second, first, human)}"
        )

    lines = [[row, *(cell(row, other) for other in rows)] for row in rows]
    print(format_table(["", *(f"against {row}" for row in rows)], lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
