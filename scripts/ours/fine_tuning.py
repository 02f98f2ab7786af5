"""What fine-tuning makes of the old text and of the new one, with shares of the constants that fit
the old text.

    python scripts/ours/fine_tuning.py measure RUN --before RUN --old DATA --new DATA --text old|new --json FILE
    python scripts/ours/fine_tuning.py table RUNS ROW …
    python scripts/ours/fine_tuning.py picture docs/results/fine-tuning-curves.json FILE.png

The constants, one per group (100 occurrences or more in the new text, 1 to 99, none), are fitted on
the validation split of the old text. `table` prints the rows from ROW/old.json and ROW/new.json,
and draws RUNS/trade-off.png.
"""

import argparse
import math
from pathlib import Path

import numpy as np

from agg_fairseq import plots
from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.evaluation import BinarizedText, perplexity
from agg_fairseq.files import read_json_object, write_json
from agg_fairseq.plots import style
from agg_fairseq.result import Result, format_table

SHARES = tuple(tenths / 10 for tenths in range(11))
RATES = ("-low", "-high", "")  # ends of the names of rows: every name ends in the last one
CURVES = ("adam", "agg", "frozen-absent", "untied", "agg-untied")


def measure(options: argparse.Namespace) -> None:
    """Writes the Result of one text, a row per share."""
    text = BinarizedText(getattr(options, options.text) / "data-bin")
    result = perplexity(
        {options.run.name: Checkpoint(options.run / "checkpoint_best.pt")},
        text,
        calibrate=BinarizedText(options.old / "data-bin", "valid"),
        shares=SHARES[1:],
        occurrences_in=options.new / "data-bin",
        moved_from=Checkpoint(options.before / "checkpoint_best.pt"),
    )
    write_json(options.json, result.json())


def table(options: argparse.Namespace) -> None:
    """Prints the table, and draws the picture of one total perplexity against the other."""
    curves, lines = {}, []
    for row in options.rows:
        curves[row] = [totals(options.runs / row, text) for text in ("new", "old")]
    for row, (new, old) in curves.items():
        result = Result.read(options.runs / row / "old.json")
        plain = curves.get(f"adam{next(filter(row.endswith, RATES))}")
        values = {
            "new text": new[0],
            "old text": old[0],
            "absent": result.value(row, "perplexity", "absent"),
            "within absent": result.value(row, "within_perplexity", "absent"),
            "E/O absent": result.value(row, "expected_over_observed", "absent"),
            "moved": result.value(row, "moved", "absent"),
            "new text, 40%": new[4],
            "old text, 40%": old[4],
            "old text at new + 1%": plain and lowest_on_old(new, old, plain[0][0]),
        }
        cells = [row]
        for title, value in values.items():
            cells.append(value and f"{value:,.{3 if title == 'moved' else 2}f}")
        lines.append(cells)
    print(format_table(["", *values], lines))
    pieces = {}
    for name in CURVES:
        pieces[name] = [curves[name + rate] for rate in RATES if name + rate in curves]
    draw(pieces, options.runs / "trade-off.png")


def picture(options: argparse.Namespace) -> None:
    """Draws the curves of a file of docs/results."""
    curves: dict[str, list[list[list[float]]]] = {}
    for row in read_json_object(options.results, "a file of docs/results")["rows"]:
        curves.setdefault(row["name"][0], []).append([row["new text"], row["old text"]])
    draw(curves, options.picture)


def draw(curves: dict[str, list[list[list[float]]]], file: Path) -> None:
    """The picture: by name, of each learning rate the perplexities of both texts."""
    figure, (axis,) = style.new_panels(width=7.0, height=4.5)
    for index, (name, pieces) in enumerate(curves.items()):
        new, old = [], []
        for piece in pieces:  # with gaps
            new += [*piece[0], math.nan]
            old += [*piece[1], math.nan]
        style.line(axis, index, new, old, name)
    labels = {"xlabel": "perplexity, new text", "ylabel": "perplexity, old text"}
    style.finish(axis, xscale="log", yscale="log", **labels)
    plots.save(style.finish_figure(figure), file, "png")


def totals(run: Path, text: str) -> list[float]:
    """The total perplexity of a text with each share of the constants."""
    result = Result.read(run / f"{text}.json")
    rows = [f"{run.name}, {share:.0%}" if share else run.name for share in SHARES]
    return [result.value(row, "perplexity", "total") for row in rows]


def lowest_on_old(new: list[float], old: list[float], plain: float) -> float | None:
    """The lowest perplexity of the old text where that of the new one is at most 1% above that of
    `adam`, if it is. Between the shares, logarithms are interpolated.
    """
    shares = np.linspace(0, 1, 1001)
    allowed = shares[np.interp(shares, SHARES, np.log(new)) <= math.log(1.01 * plain)]
    if not len(allowed):
        return None
    return math.exp(np.interp(allowed, SHARES, np.log(old)).min())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure")
    command.add_argument("run", type=Path)
    for name in ("before", "old", "new"):
        command.add_argument(f"--{name}", type=Path, required=True)
    command.add_argument("--text", choices=("old", "new"), required=True)
    command.add_argument("--json", required=True)
    command.set_defaults(call=measure)
    command = commands.add_parser("table")
    command.add_argument("runs", type=Path)
    command.add_argument("rows", nargs="+")
    command.set_defaults(call=table)
    command = commands.add_parser("picture")
    command.add_argument("results", type=Path)
    command.add_argument("picture", type=Path)
    command.set_defaults(call=picture)
    given = parser.parse_args()
    given.call(given)
