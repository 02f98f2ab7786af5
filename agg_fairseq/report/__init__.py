"""A page of HTML that compares runs: settings, learning curves, all measures, pictures and samples of text.

from agg_fairseq.report import ReportOptions, write_report

runs = {"mle": "runs/mle", "agg": "runs/agg"}
write_report(runs, "data-bin/wikitext-2", "report.html", ReportOptions(split="valid", max_texts=100))
"""

from .report import WrittenReport, write_report
from .sections import ReportOptions

__all__ = ["ReportOptions", "WrittenReport", "write_report"]
