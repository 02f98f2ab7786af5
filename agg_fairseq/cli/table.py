"""Tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

EMPTY = "—"


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown, the first column to the left and the others to the right.

    None becomes a dash; numbers are given as strings by the caller where their digits matter.
    """
    cells = [[EMPTY if cell is None else _in_a_cell(str(cell)) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "| "
        + " | ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        + " |"
        for row in cells
    ]
    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _in_a_cell(text: str) -> str:
    """A text without what would end a cell or a row."""
    return " ".join(text.split()).replace("|", "\\|") if text.strip() else text


def number(value: float | None, digits: int) -> str | None:
    """A number with thousands separators and a fixed number of decimals; None stays None."""
    return None if value is None else f"{value:,.{digits}f}"
