"""A page of HTML that compares runs of fairseq-train: settings, learning curves, all measures,
pictures, texts.

    from agg_fairseq.report import write_report

    write_report({"mle": "runs/mle", "agg": "runs/agg"}, "data-bin/wikitext-2", "report.html", split="valid")

The page loads nothing and runs no script. Its layout is in page.html.jinja; all texts are escaped
there, so that a name of a run or a token is never taken for HTML.
"""

from __future__ import annotations

import base64
import io
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from .. import __version__, evaluation, metrics, plots
from ..checkpoints.fairseq_checkpoint import Checkpoint, options_of
from ..columns import METRICS, column_titles, is_marked
from ..data.vocabulary import GROUP_MEANINGS, GROUPINGS
from ..errors import UserError
from ..evaluation import Result
from ..evaluation.inputs import check_row_names, load_vocabulary
from ..evaluation.text_metrics import read_texts
from ..files import atomic_write
from ..names import HUMAN, UNIGRAM
from ..result import RULE, UNDEFINED, SeedValues, compare

__all__ = ["write_report"]

LOG = "train.log"
MAX_SAMPLES = 3  # the number of texts that are shown side by side
NOT_SETTINGS = frozenset(
    "save_dir log_file handlers tensorboard_logdir user_dir wandb_project distributed_init_method "
    "distributed_port "
    "device_id distributed_rank no_progress_bar log_format log_interval num_workers "
    "no_epoch_checkpoints".split()
)
"""Options that say where files are and what is printed: they differ between any two runs, and
affect no number."""
OFF = frozenset(("None", "0", "0.0", "False", ""))
"""Values of an option that is switched off, which is as if the run did not have it."""

# of each run the one that is measured, by the name of the run
Checkpoints = Mapping[str, Checkpoint]
Models = Mapping[str, Mapping[str, str]]  # by the title of a model and the seed, the name of a run


class Table(NamedTuple):
    """A table that can be scrolled sideways where it is too wide."""

    header: Sequence[str]
    # a text, or a title and its metric; then texts, `Compared` values, or None, a dash
    rows: Sequence[Sequence[Any]]
    signature: str = ""  # the settings that affect the numbers, shown below the table


class Picture(NamedTuple):
    """A picture, which is in the page itself, its width in inches, and its caption."""

    url: str
    width: float
    caption: str


Block = str | Table | Picture  # a part of a section; a `str` is a paragraph


def runs_and_settings(checkpoints: Checkpoints) -> list[Block]:
    """A table of the checkpoints that are measured, and the settings that differ."""
    runs = checkpoints.values()
    rows = [
        ["checkpoint", *(run.path.name for run in runs)],
        ["updates", *(f"{run.updates:,}" for run in runs)],
    ]
    return [Table(["", *checkpoints], rows + different_settings([run.state for run in runs]))]


def settings_of(state: Mapping[str, Any]) -> dict[str, str]:
    """The options of fairseq-train that a checkpoint was trained with and that are on, in fairseq's
    order.

    An option that is in several sections of the configuration has its value of the first.
    """
    settings: dict[str, str] = {}
    for section in state.get("cfg") or ["model"]:
        for key, value in options_of(state, section).items():
            name = key if key != "_name" else "arch" if section == "model" else section
            text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            if name not in NOT_SETTINGS and text not in OFF:
                settings.setdefault(f"--{name.replace('_', '-')}", text)
    return settings


def different_settings(states: Sequence[Mapping[str, Any]]) -> list[list[str | None]]:
    """The options of fairseq-train that differ between checkpoints, in fairseq's order, each with
    values or None."""
    settings = [settings_of(state) for state in states]
    names = dict.fromkeys(name for of_state in settings for name in of_state)
    rows = [[name, *(of_state.get(name) for of_state in settings)] for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def models_of_runs(states: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """By the title of a model and the seed, the name of a run: runs that differ by the seed alone
    are one model."""
    alike: dict[frozenset[tuple[str, str]], dict[str, str]] = {}
    for name, state in states.items():
        settings = settings_of(state)
        seed = settings.pop("--seed", "")
        # trained twice with the same seed: another model
        if seed in alike.get(frozenset(settings.items()), {}):
            settings["run"] = name
        alike.setdefault(frozenset(settings.items()), {})[seed] = name
    names = [(next(iter(of_seed.values())), of_seed) for of_seed in alike.values()]
    return {
        f"{first} ({len(of_seed)} seeds)" if len(of_seed) > 1 else first: of_seed
        for first, of_seed in names
    }


def compared(result: Result, models: Models, baseline: str) -> list[Block]:
    """A table with a row per column of the result, and a column per model and per other row, such
    as the human texts.

    `baseline` is the title of the model that the others are compared with.
    """
    models = {
        model: {seed: run for seed, run in runs.items() if run in result.rows}
        for model, runs in models.items()
    }
    models = {model: runs for model, runs in models.items() if runs}
    others = [
        row for row in result.rows if not any(row in runs.values() for runs in models.values())
    ]
    rows: list[list[Any]] = []
    for (metric, key), title in column_titles(result.columns).items():
        values = {
            model: SeedValues({seed: result.shown(run, metric, key) for seed, run in runs.items()})
            for model, runs in models.items()
        }
        human = result.shown(HUMAN, metric, key) if HUMAN in result.rows else None
        cells = [
            SeedValues({"": result.shown(row, metric, key)}).format(METRICS[metric].digits)
            for row in others
        ]
        judged = METRICS[metric] if is_marked(metric, key) else replace(METRICS[metric], better="")
        of_models = [
            compare(judged, value, None if model == baseline else values.get(baseline), human)
            for model, value in values.items()
        ]
        rows.append([(title, metric), *of_models, *cells])
    groups = [
        name for name, setting in GROUPINGS.items() if result.settings.get("groups") == setting
    ]
    meanings = [
        f"Here, frequent, medium and rare tokens are {GROUP_MEANINGS[name]}." for name in groups
    ]
    return [*meanings, Table(["", *models, *map(str, others)], rows, result.signature)]


def learning_curves(checkpoints: Checkpoints) -> list[Block]:
    """Perplexity over the updates."""
    logs = {name: checkpoint.path.parent / LOG for name, checkpoint in checkpoints.items()}
    logs = {name: log for name, log in logs.items() if log.is_file()}
    if not logs:
        return [f"No run has a log; train with --log-format json --log-file SAVE_DIR/{LOG}."]
    caption = "Perplexity over the updates, of the training batches and of the validation split."
    return [picture(plots.learning_curves(logs), caption)]


def picture(figure: plots.style.Figure, caption: str) -> Picture:
    """A figure as SVG."""
    file = io.BytesIO()
    plots.save(figure, file, "svg")
    url = f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
    return Picture(url, figure.get_figwidth(), caption)


def texts_of(checkpoints: Checkpoints, data: str | Path, **options: Any) -> tuple[Result, Table]:
    """Texts that the models write: measures of the texts, and samples side by side, evenly spread
    over the texts."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder, f"{number}.jsonl") for number, name in enumerate(checkpoints)}
        for name, file in files.items():
            evaluation.generate_texts(checkpoints[name], data, file, **options)
        result = evaluation.text_metrics(files, data)
        texts = [read_texts(file) for file in files.values()]
    samples = []
    for index in sorted(
        {(2 * part + 1) * len(texts[0]) // (2 * MAX_SAMPLES) for part in range(MAX_SAMPLES)}
    ):
        first, *others = [of_run[index] for of_run in texts]
        cells = [
            first["prefix"],
            *(text["continuation"] for text in (first, *others)),
            first["reference"],
        ]
        samples.append(list(map(running_text, cells)))
    return result, Table(["prefix", *checkpoints, HUMAN], samples)


def running_text(text: str) -> str:
    """Tokens as a text: sub-words of sentencepiece, of GPT-2's vocabulary and of subword-nmt are
    put together."""
    for space in ("▁", "Ġ"):
        if space in text:
            return text.replace(" ", "").replace(space, " ").strip()
    return text.replace("@@ ", "")


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
        split: to evaluate and to continue.
        baseline: name of the run that the others are compared with; None: the first.
        max_texts: number of texts that each language model continues; None: all.
        results: what other commands wrote to --json, such as `bleu` or `word-similarity`; rows have
            names of runs.

    Returns:
        The errors that kept sections from being shown; the page has them in their place.
    """
    import jinja2

    check_row_names(runs, HUMAN, UNIGRAM)
    baseline = baseline or next(iter(runs))
    if baseline not in runs:
        raise UserError(
            f"--baseline: found {baseline!r}; expected the name of a run: {', '.join(runs)}"
        )
    checkpoints = {name: Checkpoint(folder, training_state=False) for name, folder in runs.items()}
    load_vocabulary(checkpoints, data)  # they are of one task, and the data is theirs
    models = models_of_runs({name: checkpoint.state for name, checkpoint in checkpoints.items()})
    base = next(title for title, of_seed in models.items() if baseline in of_seed.values())

    def predictions() -> list[Block]:
        result = evaluation.perplexity(
            checkpoints, evaluation.BinarizedText(data, split), device=device
        )
        columns = {
            metric: keys
            for metric, keys in result.columns.items()
            if metric not in metrics.Geometry._fields
        }
        return compared(replace(result, columns=columns), models, base)

    def embeddings() -> list[Block]:
        plane = "Token embeddings in the plane of their first two singular directions, at most 2,000 of each group."
        values = "Singular values of the embeddings: the slower they fall, the more isotropic are the embeddings."
        return [
            *compared(evaluation.isotropy(checkpoints, data), models, base),
            picture(plots.projection(checkpoints, data), plane),
            picture(plots.singular_values(checkpoints), values),
        ]

    def generated_texts() -> list[Block]:
        result, samples = texts_of(
            checkpoints, data, split=split, max_texts=max_texts, device=device
        )
        caption = "Share of tokens by their part of the training text: the top 40%, next 30%, next 20% and last 10%."
        return [
            *compared(result, models, base),
            picture(plots.token_shares({"the generated texts": result}), caption),
            samples,
        ]

    makers: dict[str, Callable[[], list[Block]]] = {
        "Runs and settings": lambda: runs_and_settings(checkpoints),
        "Learning curves": lambda: learning_curves(checkpoints),
    }
    if next(iter(checkpoints.values())).is_language_model:
        makers |= {"Perplexity and predictions": predictions, "Generated texts": generated_texts}
    makers["Embeddings"] = embeddings
    if results:
        makers["Other results"] = lambda: [
            block for result in results for block in compared(result, models, base)
        ]
    sections, errors = {}, []
    for title, make in tqdm(
        makers.items(), desc="report", unit="section", disable=None, leave=False
    ):
        try:
            sections[title] = make()
        except UserError as error:  # the other sections are worth having
            sections[title] = [f"error: {error}"]
            errors.append(error)
    tables = [block for blocks in sections.values() for block in blocks if isinstance(block, Table)]
    terms = [row[0][1] for table in tables for row in table.rows if isinstance(row[0], tuple)]
    layout = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    html = environment.from_string(layout).render(
        title=", ".join(models),
        rule=f"In the tables, ▲ is better than {base}, and ▽ is worse. {RULE}",
        sections=sections,
        glossary={name: METRICS[name] for name in terms},
        undefined=UNDEFINED,
        footer=f"agg-fairseq {__version__} report, {time.strftime('%Y-%m-%d %H:%M')}; data: "
        f"{data}; split: {split}",
    )
    atomic_write(output, lambda temporary: temporary.write_text(html, "utf-8", "backslashreplace"))
    return errors
