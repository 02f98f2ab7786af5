"""The paper's numbers and ours in one table."""

from __future__ import annotations

from collections.abc import Sequence

from agg_fairseq.cli.table import format_table

from .experiment import Measure, Method, Value

NOT_RUN = "not run"
MOST_COLUMNS = 4
"""As many measures stand side by side; more stand under each other, and the methods side by side."""

Cells = Sequence[Sequence[Value]]
"""A row per method, a column per measure."""


def render(methods: Sequence[Method], measures: Sequence[Measure], cells: Cells) -> str:
    """A table with a column of the paper's beside each of ours; without one where the paper has none."""
    ours = [[_shown(value, measure) for value, measure in zip(row, measures, strict=True)] for row in cells]
    papers = [[_of_paper(method, index) for index in range(len(measures))] for method in methods]
    if len(measures) <= MOST_COLUMNS:
        names, labels = [method.label for method in methods], [measure.label for measure in measures]
    else:
        names, labels = [measure.label for measure in measures], [method.label for method in methods]
        ours, papers = _transposed(ours), _transposed(papers)
    return _side_by_side(names, labels, papers, ours)


def _side_by_side(
    names: Sequence[str],
    labels: Sequence[str],
    papers: Sequence[Sequence[str | None]],
    ours: Sequence[Sequence[str | None]],
) -> str:
    header, columns = [""], [list(names)]
    for label, paper, own in zip(labels, _transposed(papers), _transposed(ours), strict=True):
        if any(cell is not None for cell in paper):
            header.append(f"{label}, paper")
            columns.append(paper)
        header.append(label)
        columns.append(own)
    return format_table(header, _transposed(columns))


def _transposed(rows: Sequence[Sequence[str | None]]) -> list[list[str | None]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _of_paper(method: Method, index: int) -> str | None:
    return method.paper[index] if index < len(method.paper) else None


def _shown(value: Value, measure: Measure) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return f"{value:,.{measure.digits}f}"
