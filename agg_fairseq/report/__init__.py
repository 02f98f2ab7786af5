"""A page of HTML that compares runs of fairseq-train.

    from agg_fairseq.report import write_report

    runs = {"mle": "runs/mle", "agg": "runs/agg"}
    write_report(runs, "data-bin/wikitext-2", "report.html", split="valid")

The page loads nothing and runs no script. Its layout is in page.html.jinja, which escapes all texts,
such as names and tokens.
"""

from __future__ import annotations

import base64
import io
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from .. import __version__, evaluation, metrics, plots
from ..checkpoints.fairseq_checkpoint import Checkpoint
from ..columns import METRICS, column_titles, is_marked
from ..data.vocabulary import GROUP_MEANINGS, GROUPINGS
from ..errors import UserError
from ..evaluation import Result
from ..evaluation.inputs import check_row_names, load_vocabulary
from ..evaluation.text_metrics import read_texts
from ..files import atomic_write
from ..names import HUMAN, UNIGRAM
from ..result import RULE, UNDEFINED, SeedValues, compare
from .settings import different_settings, models_of_runs

__all__ = ["write_report"]

LOG = "train.log"


class Table(NamedTuple):
    """A table that can be scrolled sideways where it is too wide."""

    header: Sequence[str]
    # a text, or a title and its metric; then texts, `Compared` values, or None, a dash
    rows: Sequence[Sequence[Any]]
    signature: str = ""  # below the table


class Picture(NamedTuple):
    """A picture in the page itself, and its width in inches."""

    url: str
    width: float
    caption: str


Block = str | Table | Picture  # a part of a section; a `str` is a paragraph


def write_report(
    runs: Mapping[str, str | Path],
    data: str | Path,
    output: str | Path,
    *,
    split: str = "test",
    baseline: str | None = None,
    max_texts: int | None = None,
    results: Sequence[Result] = (),
    device: str | None = None,
) -> list[UserError]:
    """Writes a page that compares runs.

    Args:
        runs: folders of runs, all of the same task, by the names that the page shows.
        data: folder written by `fairseq-preprocess` that the runs were trained on.
        output: page to write.
        split: split to evaluate and to continue.
        baseline: name of the run that the others are compared with; None: the first.
        max_texts: number of texts that each language model continues; None: all.
        results: what other commands wrote to --json, such as `bleu` or `word-similarity`; rows have
            names of runs.

    Returns:
        The errors that the page has in the place of a section.
    """
    check_row_names(runs, HUMAN, UNIGRAM)
    baseline = baseline or next(iter(runs))
    if baseline not in runs:
        raise UserError(
            f"--baseline: found {baseline!r}; expected the name of a run: {', '.join(runs)}"
        )
    checkpoints = {name: Checkpoint(folder) for name, folder in runs.items()}
    load_vocabulary(checkpoints, data)  # they are of one task, and the data is theirs
    models = models_of_runs({name: checkpoint.state for name, checkpoint in checkpoints.items()})
    base = next(title for title, of_seed in models.items() if baseline in of_seed.values())

    sections = Sections(checkpoints, models, base, data, split, max_texts, results, device)
    makers = {
        "Runs and settings": sections.runs_and_settings,
        "Learning curves": sections.learning_curves,
    }
    if checkpoints[baseline].is_language_model:
        makers["Perplexity and predictions"] = sections.predictions
        makers["Generated texts"] = sections.generated_texts
    makers["Embeddings"] = sections.embeddings
    if results:
        makers["Other results"] = sections.other_results
    blocks: dict[str, list[Block]] = {}
    errors = []
    for title, make in tqdm(makers.items(), "report", leave=False, disable=None):
        try:
            blocks[title] = make()
        except UserError as error:  # the other sections are worth having
            blocks[title] = [f"error: {error}"]
            errors.append(error)
    written = f"agg-fairseq {__version__} report, {time.strftime('%Y-%m-%d %H:%M')}"
    html = page(
        blocks,
        title=", ".join(models),
        rule=f"In the tables, ▲ is better than {base}, and ▽ is worse. {RULE}",
        footer=f"{written}; data: {data}; split: {split}",
    )
    atomic_write(output, lambda temporary: temporary.write_text(html, "utf-8", "backslashreplace"))
    return errors


def page(sections: Mapping[str, Sequence[Block]], **texts: str) -> str:
    """The page in HTML, with a glossary of the metrics in its tables."""
    import jinja2

    glossary = {}
    for block in chain(*sections.values()):
        for row in block.rows if isinstance(block, Table) else ():
            if isinstance(row[0], tuple):
                glossary[row[0][1]] = METRICS[row[0][1]]
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    layout = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(layout).render(
        sections=sections, glossary=glossary, undefined=UNDEFINED, **texts
    )


@dataclass(frozen=True)
class Sections:
    """The sections of the page, a method for each."""

    checkpoints: Mapping[str, Checkpoint]  # that are measured, by the names of the runs
    models: Mapping[str, Mapping[str, str]]  # by title and seed, the name of a run
    baseline: str  # the title of the model that the others are compared with
    data: str | Path
    split: str
    max_texts: int | None
    results: Sequence[Result]
    device: str | None

    def runs_and_settings(self) -> list[Block]:
        """The checkpoints that are measured, and the settings that differ."""
        files, updates, states = ["checkpoint"], ["updates"], []
        for run in self.checkpoints.values():
            files.append(run.path.name)
            updates.append(f"{run.updates:,}")
            states.append(run.state)
        return [Table(["", *self.checkpoints], [files, updates, *different_settings(states)])]

    def learning_curves(self) -> list[Block]:
        """Perplexity over the updates."""
        logs = {}
        for name, checkpoint in self.checkpoints.items():
            log = checkpoint.path.parent / LOG
            if log.is_file():
                logs[name] = log
        if not logs:
            return [f"No run has a log; train with --log-format json --log-file SAVE_DIR/{LOG}."]
        caption = "Perplexity over the updates, of training batches and of the validation split."
        return [picture(plots.learning_curves(logs), caption)]

    def predictions(self) -> list[Block]:
        """Measures of the next tokens, without those of embeddings."""
        text = evaluation.BinarizedText(self.data, self.split)
        result = evaluation.perplexity(self.checkpoints, text, device=self.device)
        columns = dict(result.columns)
        for metric in metrics.Geometry._fields:
            columns.pop(metric, None)
        return self.compared(replace(result, columns=columns))

    def generated_texts(self) -> list[Block]:
        """Measures of texts that the models write, and samples, evenly spread over the texts."""
        files, texts = {}, []
        with tempfile.TemporaryDirectory() as folder:
            for number, (name, checkpoint) in enumerate(self.checkpoints.items()):
                files[name] = Path(folder, f"{number}.jsonl")
                evaluation.generate_texts(
                    checkpoint, self.data, files[name], split=self.split,
                    max_texts=self.max_texts, device=self.device,
                )  # fmt: skip
                texts.append(read_texts(files[name]))
            result = evaluation.text_metrics(files, self.data)
        samples = []
        for index in dict.fromkeys(part * len(texts[0]) // 6 for part in (1, 3, 5)):
            cells = [texts[0][index]["prefix"]]
            for of_run in texts:
                cells.append(of_run[index]["continuation"])
            cells.append(texts[0][index]["reference"])
            samples.append(list(map(running_text, cells)))
        caption = "Share of tokens by their part of the training text: the top 40%, next 30%, next 20% and last 10%."
        return [
            *self.compared(result),
            picture(plots.token_shares({"the generated texts": result}), caption),
            Table(["prefix", *self.checkpoints, HUMAN], samples),
        ]

    def embeddings(self) -> list[Block]:
        """Measures and pictures of the output embeddings."""
        plane = "Token embeddings in the plane of their first two singular directions, at most 2,000 of each group."
        values = "Singular values: the slower they fall, the more isotropic are the embeddings."
        return [
            *self.compared(evaluation.isotropy(self.checkpoints, self.data)),
            picture(plots.projection(self.checkpoints, self.data), plane),
            picture(plots.singular_values(self.checkpoints), values),
        ]

    def other_results(self) -> list[Block]:
        """A table for each result of another command."""
        return list(chain(*map(self.compared, self.results)))

    def compared(self, result: Result) -> list[Block]:
        """A table with a row per column of the result, and a column per model and other row."""
        models: dict[str, dict[str, str]] = {}
        others = list(result.rows)
        for model, runs in self.models.items():
            for seed, run in runs.items():
                if run in result.rows:
                    models.setdefault(model, {})[seed] = run
                    others.remove(run)
        rows: list[list[Any]] = []
        for (metric, key), title in column_titles(result.columns).items():
            judged = METRICS[metric]
            if not is_marked(metric, key):
                judged = replace(judged, better="")
            human = result.shown(HUMAN, metric, key) if HUMAN in result.rows else None
            values = {}
            for model, runs in models.items():
                of_seed = {seed: result.shown(run, metric, key) for seed, run in runs.items()}
                values[model] = SeedValues(of_seed)
            cells: list[Any] = [(title, metric)]
            for model, value in values.items():
                base = None if model == self.baseline else values.get(self.baseline)
                cells.append(compare(judged, value, base, human))
            for row in others:
                cells.append(result.cell(row, metric, key))
            rows.append(cells)
        blocks: list[Block] = []
        for name, setting in GROUPINGS.items():
            if result.settings.get("groups") == setting:
                blocks = [f"Here, frequent, medium and rare tokens are {GROUP_MEANINGS[name]}."]
        header = ["", *models, *map(str, others)]
        return [*blocks, Table(header, rows, result.signature)]


def picture(figure: plots.style.Figure, caption: str) -> Picture:
    """A figure as SVG."""
    file = io.BytesIO()
    plots.save(figure, file, "svg")
    url = f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
    return Picture(url, figure.get_figwidth(), caption)


def running_text(text: str) -> str:
    """Tokens as a text, with sub-words of sentencepiece, GPT-2 and subword-nmt put together."""
    for space in ("▁", "Ġ"):
        if space in text:
            return text.replace(" ", "").replace(space, " ").strip()
    return text.replace("@@ ", "")
