"""A page of HTML that compares runs of fairseq-train.

The page loads nothing and runs no script. page.html.jinja is its layout, and escapes all texts.
"""

from __future__ import annotations

import base64
import io
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__, evaluation, plots
from ..checkpoints import Checkpoint
from ..columns import METRICS, column_titles, is_marked
from ..errors import UserError
from ..evaluation import Result
from ..evaluation.inputs import check_row_names, load_vocabulary
from ..evaluation.texts import read_texts
from ..files import atomic_write
from ..names import GROUP_MEANINGS, GROUPINGS, HUMAN, UNIGRAM
from ..result import BETTER, SAME, UNDEFINED, VERDICT_RULE, WORSE, Compared, SeedValues, compare
from .settings import different_settings, models_of_runs

__all__ = ["write_report"]

LOG, TRANSLATIONS = "train.log", "generate.log"
VERDICTS = {BETTER: "better", WORSE: "worse", SAME: "no clear difference", "": "not tested"}
HEADLINES = ("PPL total", "calibrated PPL total", "PPL within rare", "BLEU", "sacreBLEU")
"""Titles of the rows that the first lines of the page repeat."""


class Table(NamedTuple):
    """A table that can be scrolled sideways where it is too wide."""

    header: Sequence[str]
    # a text, or a title and its metric; then texts, `Compared` values, or None, a dash
    rows: Sequence[Sequence[Any]]


Block = str | Table | Mapping[str, Any]
"""A part of a section: a paragraph, a table, or what page.html.jinja shows of the signature of the
tables above it, of a command line, folded under its title, or of a picture."""


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
    # they are of one task, and the data is theirs
    languages = load_vocabulary(checkpoints, data).languages
    models = models_of_runs(checkpoints)
    base = next(title for title, by_seed in models.items() if baseline in by_seed.values())
    sections: dict[str, list[Block]] = {}
    errors = []

    @contextmanager
    def section(title: str) -> Iterator[list[Block | Result]]:
        """A section to fill with blocks and results; if that fails, it has the error instead."""
        found, blocks = [], []
        try:
            yield found
            for block in found:
                blocks += compared(block, models, base) if isinstance(block, Result) else [block]
        except UserError as error:  # the other sections are worth having
            blocks = [f"error: {error}"]
            errors.append(error)
        sections[title] = blocks

    with section("Runs and settings") as blocks:
        blocks += settings_and_commands(checkpoints)
    with section("Learning curves") as blocks:
        blocks.append(learning_curves(checkpoints))
    if languages is None:
        with section("Perplexity and predictions") as blocks:
            text = evaluation.BinarizedText(data, split)
            has_valid = split != "valid" and Path(data, "valid.idx").is_file()
            valid = evaluation.BinarizedText(data, "valid") if has_valid else None
            # another section has the geometry
            result = evaluation.perplexity(
                checkpoints, text, calibrate=valid, geometry=(), device=device
            )
            blocks.append(result)
        with section("Generated texts") as blocks:
            result, samples = generated_texts(checkpoints, data, split, max_texts, device)
            caption = (
                "Share of tokens by their part of the training text: the top 40%, next 30%, "
                "next 20% and last 10%."
            )
            shares = plots.token_shares({"the generated texts": result})
            blocks += [result, picture(shares, caption), samples]
    else:
        with section("Translations") as blocks:
            blocks.append(translations(checkpoints, data, split, languages[1]))
    with section("Embeddings") as blocks:
        blocks.append(evaluation.isotropy(checkpoints, data))
        plane = (
            "Token embeddings in the plane of their first two singular directions, at most 2,000 "
            "of each group."
        )
        blocks.append(picture(plots.projection(checkpoints, data), plane))
        values = "Singular values: the slower they fall, the more isotropic are the embeddings."
        blocks.append(picture(plots.singular_values(checkpoints), values))
    if results:
        with section("Other results") as blocks:
            blocks += results
    written = f"agg-fairseq {__version__} report, {time.strftime('%Y-%m-%d %H:%M')}"
    html = page(
        sections,
        title=", ".join(models),
        verdict=verdict(sections, models),
        rule=f"In the tables, ▲ is better than {base}, and ▽ is worse. {VERDICT_RULE}",
        footer=f"{written}; data: {data}; split: {split}",
    )
    atomic_write(output, lambda temporary: temporary.write_text(html, "utf-8", "backslashreplace"))
    return errors


def settings_and_commands(checkpoints: Mapping[str, Checkpoint]) -> list[Block]:
    """What was trained, for how long, where the settings differ, and the commands."""
    from ..fairseq_plugin.training_command import training_command  # imports fairseq

    opened = list(checkpoints.values())
    files = ["checkpoint", *(checkpoint.path.name for checkpoint in opened)]
    updates = ["updates", *(f"{checkpoint.updates:,}" for checkpoint in opened)]
    times = ["hours:minutes:seconds"]
    for checkpoint in opened:
        seconds = (checkpoint.state.get("extra_state") or {}).get("previous_training_time")
        times.append(UNDEFINED if seconds is None else str(timedelta(seconds=round(seconds))))
    rows = [files, updates, times, *different_settings(opened)]
    blocks = [Table(["", *checkpoints], rows)]
    for name, checkpoint in checkpoints.items():
        if line := training_command(checkpoint):
            blocks.append({"title": f"The command that trains {name}", "line": line})
    return blocks


def files_of_runs(checkpoints: Mapping[str, Checkpoint], file: str) -> dict[str, Path]:
    """The files of this name in the folders of the runs that have it."""
    paths = {name: checkpoint.path.with_name(file) for name, checkpoint in checkpoints.items()}
    return {name: path for name, path in paths.items() if path.is_file()}


def learning_curves(checkpoints: Mapping[str, Checkpoint]) -> Block:
    """Those of the runs that have a log."""
    logs = files_of_runs(checkpoints, LOG)
    if not logs:
        return f"No run has a log; train with --log-format json --log-file SAVE_DIR/{LOG}."
    caption = "Perplexity over the updates, of training batches and of the validation split."
    return picture(plots.learning_curves(logs), caption)


def verdict(sections: Mapping[str, Sequence[Block]], models: Sequence[str]) -> list[str]:
    """A sentence for each of the `HEADLINES`: the models' values, and whether they are better than
    the baseline's."""
    sentences = {}
    for block in chain(*sections.values()):
        for (title, *_), *cells in block.rows if isinstance(block, Table) else ():
            if title not in HEADLINES or set(models) - set(block.header):
                continue
            found = []
            for model, cell in zip(block.header[1:], cells, strict=True):
                if isinstance(cell, Compared) and cell.text != UNDEFINED:
                    change = cell.change.replace("-", "−")
                    judged = f" ({change}, {VERDICTS[cell.verdict]})" if change else ""
                    found.append(f"{model} {cell.text}{judged}")
            if found:
                sentences.setdefault(title, f"{title}: {'; '.join(found)}.")
    return [sentences[title] for title in HEADLINES if title in sentences]


def page(sections: Mapping[str, Sequence[Block]], **texts: str | Sequence[str]) -> str:
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


def translations(
    checkpoints: Mapping[str, Checkpoint], data: str | Path, split: str, language: str
) -> Result | str:
    """BLEU of the logs of `fairseq-generate` in the folders of runs, and sacreBLEU where the data was
    prepared with the untokenized `reference` beside it."""
    logs = files_of_runs(checkpoints, TRANSLATIONS)
    if not logs:
        return f"No run has translations; run fairseq-generate … > RUN/{TRANSLATIONS} 2>&1."
    reference = Path(data).parent / "reference" / f"{split}.{language}"
    if reference.is_file():  # of scripts/wmt14_en_de/prepare.sh, and so tokenized by Moses
        return evaluation.bleu(logs, reference=reference, moses=language)
    return evaluation.bleu(logs)


def generated_texts(
    checkpoints: Mapping[str, Checkpoint],
    data: str | Path,
    split: str,
    max_texts: int | None,
    device: str | None,
) -> tuple[Result, Table]:
    """Measures of texts that the models write, and three samples, evenly spread over the texts."""
    files, texts = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, checkpoint) in enumerate(checkpoints.items()):
            files[name] = Path(folder, f"{number}.jsonl")
            evaluation.generate_texts(
                checkpoint, data, files[name], split=split, max_texts=max_texts, device=device
            )
            texts.append(read_texts(files[name]))
        result = evaluation.text_metrics(files, data)
    samples = []
    for index in dict.fromkeys(part * len(texts[0]) // 6 for part in (1, 3, 5)):
        cells = [texts[0][index]["prefix"]]
        for records in texts:
            cells.append(records[index]["continuation"])
        cells.append(texts[0][index]["reference"])
        samples.append(list(map(running_text, cells)))
    return result, Table(["prefix", *checkpoints, HUMAN], samples)


def compared(
    result: Result, runs_by_model: Mapping[str, Mapping[str, str]], baseline: str
) -> list[Block]:
    """Tables with a row per column of the result, and a column per model and other row.

    Args:
        runs_by_model: by the title of a model and the seed, the name of a run.
        baseline: title of the model that the others are compared with.
    """
    models, others = {}, list(result.rows)
    for model, runs in runs_by_model.items():
        for seed, run in runs.items():
            if run in result.rows:
                models.setdefault(model, {})[seed] = run
                others.remove(run)
    tables: dict[str, list[list[Any]]] = {}  # of a measure with several columns; of all others
    for (metric, key), title in column_titles(result.columns).items():
        judged = METRICS[metric]
        if not is_marked(metric, key):
            judged = replace(judged, better="")
        human = result.shown(HUMAN, metric, key) if HUMAN in result.rows else None
        values = {}
        for model, runs in models.items():
            by_seed = {seed: result.shown(run, metric, key) for seed, run in runs.items()}
            values[model] = SeedValues(by_seed)
        cells = [(title, metric)]
        for model, value in values.items():
            base = None if model == baseline else values.get(baseline)
            cells.append(compare(judged, value, base, human))
        cells += [result.cell(row, metric, key) for row in others]
        measure = metric if len(result.columns[metric]) > 2 else ""
        tables.setdefault(measure, []).append(cells)
    blocks = []
    for name, setting in GROUPINGS.items():
        if result.settings.get("groups") == setting:
            blocks = [f"Here, frequent, medium and rare tokens are {GROUP_MEANINGS[name]}."]
    header = ["", *models, *map(str, others)]
    for rows in tables.values():
        columns = zip(header, *rows, strict=True)
        shown = [column for column in columns if set(column[1:]) != {UNDEFINED}]
        titles, *cells_by_row = zip(*shown, strict=True)
        blocks.append(Table(titles, cells_by_row))
    return [*blocks, {"signature": result.signature}]


def picture(figure: plots.style.Figure, caption: str) -> Block:
    """A figure as SVG in the page itself, and its width in inches."""
    file = io.BytesIO()
    plots.save(figure, file, "svg")
    url = f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
    return {"url": url, "width": figure.get_figwidth(), "caption": caption}


def running_text(text: str) -> str:
    """Tokens as a text, with sub-words of sentencepiece, GPT-2 and subword-nmt put together."""
    for space in ("▁", "Ġ"):
        if space in text:
            return text.replace(" ", "").replace(space, " ").strip()
    return text.replace("@@ ", "")
