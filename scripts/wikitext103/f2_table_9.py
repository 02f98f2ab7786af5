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

COMPARED = {"ms_jaccard": "3", "self_bleu": "3", "distinct": "3"}
COMPARED |= dict.fromkeys(("kld", "repetition", "unique_tokens"), "")


def wins(
    first: Mapping[str, float], second: Mapping[str, float], human: Mapping[str, float]
) -> int:
    """The number of measures in which the first model is better than the second."""
    won = 0
    for name in first:
        distance = METRICS[name].distance(human.get(name))
        won += distance(first[name]) < distance(second[name])
    return won


def main(runs: Path, rows: list[str]) -> None:
    """Prints the table, `won-lost`."""
    values = {}
    for row in rows:
        ppl, texts = (Result.read(runs / row / f"{name}.json") for name in ("ppl", "greedy"))
        values[row] = {metric: texts.value(row, metric, key) for metric, key in COMPARED.items()}
        values[row]["perplexity"] = ppl.value(row, "perplexity", "total")
        human = {metric: texts.value(HUMAN, metric, key) for metric, key in COMPARED.items()}
    lines: list[list[str | None]] = []
    for row, first in values.items():
        lines.append([row])
        for other, second in values.items():
            won_lost = f"{wins(first, second, human)}-{wins(second, first, human)}"
            lines[-1].append(None if row == other else won_lost)
    print(format_table(["", *(f"against {row}" for row in rows)], lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
