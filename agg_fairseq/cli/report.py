"""`agg-fairseq report`."""

import argparse

from ..names import unique_names
from ..report import ReportOptions, write_report
from .options import add_inputs, add_options, description, options_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The runs, and the options of a report."""
    parser.description = description(write_report)
    add_inputs(parser, "RUN", "folders of runs, compared side by side")
    add_options(parser, ReportOptions)
    add_options(parser, write_report)


def run(arguments: argparse.Namespace) -> None:
    """Writes the report, and prints what is on it and what is not."""
    names = unique_names(arguments.inputs, arguments.name, "name")
    options = ReportOptions(**options_of(ReportOptions, arguments))
    runs = dict(zip(names, arguments.inputs, strict=True))
    report = write_report(runs, arguments.data, arguments.output, options)
    print(f"{report.path}: {report.sections} sections, {report.path.stat().st_size / 2**20:.1f} MiB")
    for title, reason in report.left_out.items():
        print(f"not shown: {title}: {reason}")
    if report.errors:
        raise report.errors[0]
