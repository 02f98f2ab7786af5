"""A page of HTML that compares runs: settings, learning curves, all measures, pictures and samples of text.

from agg_fairseq.report import ReportOptions, write_report

runs = {"mle": "runs/mle", "agg": "runs/agg"}
write_report(runs, "data-bin/wikitext-2", "report.html", ReportOptions(split="valid", max_texts=100))
"""

import time
from collections.abc import Mapping
from pathlib import Path

from tqdm import tqdm

from .. import __version__
from ..errors import UserError
from ..evaluation import Cache
from ..files import atomic_write, check_writable
from .comparison import Comparison
from .page import Section, Table, Term, load_template
from .runs import open_runs
from .sections import SECTIONS, NotShown, ReportInputs, ReportOptions

__all__ = ["write_report", "ReportOptions", "NotShown"]

DEFAULTS = ReportOptions()


def write_report(
    runs: Mapping[str, str | Path], data: str | Path, output: str | Path, options: ReportOptions = DEFAULTS
) -> dict[str, NotShown | UserError]:
    """Compares runs of fairseq-train on one page: settings, learning curves, measures, pictures, samples of text.

    Results and generated texts are stored in the folder `OUTPUT-files`, and are computed again only if a checkpoint,
    the data or an option has changed.

    Args:
        runs: folders of runs, all of the same task, by the names that the page shows.
        data: folder written by `fairseq-preprocess` that the runs were trained on.
        output: page to write, .html.

    Returns:
        By the titles of the sections that are not on the page the reasons, which it lists at the end.

    Raises:
        UserError: `output` cannot be written; a run or the data is not there; the runs are of different tasks; there
            is another number of translations than of runs; there is no run of the baseline's name; or Jinja2 is not
            installed.
    """
    data, output = Path(data), Path(output)
    if output.suffix.lower() != ".html":
        raise UserError(f"--output: found {output.name!r}; expected a name ending in .html")
    if not data.is_dir():
        raise UserError(f"{data}: found no such folder; expected one written by fairseq-preprocess")
    if options.translations and len(options.translations) != len(runs):
        found = f"{len(options.translations)} logs for {len(runs)} runs"
        raise UserError(f"--translations: found {found}; give one log each")
    check_writable(output)
    template = load_template()
    cache = Cache(output.with_name(f"{output.name}-files"))
    opened = open_runs(runs)
    inputs = ReportInputs(opened, data, options, cache, Comparison.of_runs(opened, options.baseline))

    sections: list[Section] = []
    left_out: dict[str, NotShown | UserError] = {}
    for anchor, (title, make) in tqdm(SECTIONS.items(), desc="report", unit="section", disable=None, leave=False):
        try:
            sections.append(Section(anchor, title, make(inputs)))
        except (NotShown, UserError) as reason:  # the other sections are worth having
            left_out[title] = reason
    if left_out:
        reasons = [(title, f"{'error: ' * isinstance(why, UserError)}{why}") for title, why in left_out.items()]
        sections.append(Section("not-shown", "Not in this report", [Table(["", "reason"], reasons)]))
    rows = [row for section in sections for block in section.blocks if isinstance(block, Table) for row in block.rows]
    names = list(inputs.comparison.models)
    html = template.render(
        title=f"Comparison of {', '.join(names)}" if len(names) > 1 else names[0],
        sections=sections,
        glossary=dict.fromkeys(row[0].measure for row in rows if isinstance(row[0], Term)),
        footer=f"agg-fairseq {__version__} report, {time.strftime('%Y-%m-%d %H:%M')}; data: {data}; "
        f"split: {options.split}",
    )
    atomic_write(output, lambda temporary: temporary.write_text(html, "utf-8", "backslashreplace"))
    return left_out
