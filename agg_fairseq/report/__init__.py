"""A page of HTML that compares runs of fairseq-train: settings, learning curves, all measures, pictures, texts.

    from agg_fairseq.report import write_report

    write_report({"mle": "runs/mle", "agg": "runs/agg"}, "data-bin/wikitext-2", "report.html", split="valid")

The page loads nothing and runs no script, and can be read on a phone, in the dark and in print. Its layout is in
page.html.jinja; all texts are escaped there, so that a name of a run or a token is never taken for HTML.
"""

import time
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .. import __version__
from ..checkpoints.fairseq_checkpoint import Checkpoint, check_run_folder
from ..columns import METRICS
from ..errors import UserError
from ..evaluation.inputs import check_row_names
from ..files import atomic_write, check_writable
from ..names import HUMAN, UNIGRAM
from ..result import UNDEFINED
from .sections import SECTIONS, NotShown, Report, Table

__all__ = ["write_report", "NotShown"]


def write_report(
    runs: Mapping[str, str | Path], data: str | Path, output: str | Path, **options: Any
) -> dict[str, NotShown | UserError]:
    """Writes a page that compares runs.

    Args:
        runs: folders of runs, all of the same task, by the names that the page shows.
        data: folder written by `fairseq-preprocess` that the runs were trained on.
        output: page to write, .html.
        options: the other fields of `report.sections.Report`.

    Returns:
        By the titles of the sections that are not on the page the reasons, which it lists at the end.

    Raises:
        UserError: `output` cannot be written; a run or the data is not there; the runs are of different tasks; there
            is no run of the baseline's name; or Jinja2 is not installed.
    """
    data, output = Path(data), Path(output)
    if output.suffix.lower() != ".html":
        raise UserError(f"--output: found {output.name!r}; expected a name ending in .html")
    if not data.is_dir():
        raise UserError(f"{data}: found no such folder; expected one written by fairseq-preprocess")
    check_writable(output)
    check_row_names(runs, HUMAN, UNIGRAM)
    try:
        import jinja2
    except ImportError as error:
        raise UserError("report: jinja2 is missing; pip install '.[eval]'") from error
    for folder in runs.values():
        check_run_folder(Path(folder))
    checkpoints = {name: Checkpoint(folder, training_state=False) for name, folder in runs.items()}
    tasks = {name: checkpoint.task_options.get("_name") for name, checkpoint in checkpoints.items()}
    first = next(iter(runs))
    for name, task in tasks.items():
        if task != tasks[first]:
            raise UserError(f"{runs[name]}: found the task {task}; expected {tasks[first]}, that of {runs[first]}")
    report = Report(checkpoints, data, **options)

    sections, left_out = {}, {}
    for title, make in tqdm(SECTIONS.items(), desc="report", unit="section", disable=None, leave=False):
        try:
            sections[title] = make(report)
        except (NotShown, UserError) as reason:  # the other sections are worth having
            left_out[title] = reason
    if left_out:
        reasons = [(title, f"{'error: ' * isinstance(why, UserError)}{why}") for title, why in left_out.items()]
        sections["Not in this report"] = [Table(["", "reason"], reasons)]
    tables = [block for blocks in sections.values() for block in blocks if isinstance(block, Table)]
    terms = [row[0][1] for table in tables for row in table.rows if isinstance(row[0], tuple)]
    layout = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    strict = {"undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    html = (
        jinja2.Environment(autoescape=True, **strict)
        .from_string(layout)
        .render(
            title=f"Comparison of {', '.join(report.models)}" if len(report.models) > 1 else first,
            sections=sections,
            glossary={name: METRICS[name] for name in terms},
            undefined=UNDEFINED,
            footer=f"agg-fairseq {__version__} report, {time.strftime('%Y-%m-%d %H:%M')}; data: {data}; "
            f"split: {report.split}",
        )
    )
    atomic_write(output, lambda temporary: temporary.write_text(html, "utf-8", "backslashreplace"))
    return left_out
