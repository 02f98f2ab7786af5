"""A page of HTML that compares runs of fairseq-train: settings, learning curves, all measures, pictures, texts.

    from agg_fairseq.report import write_report

    write_report({"mle": "runs/mle", "agg": "runs/agg"}, "data-bin/wikitext-2", "report.html", split="valid")

The page loads nothing and runs no script. Its layout is in page.html.jinja; all texts are escaped there, so that a name
of a run or a token is never taken for HTML.
"""

from __future__ import annotations

import base64
import io
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from .. import __version__, evaluation, metrics, plots
from ..checkpoints.fairseq_checkpoint import Checkpoint, check_run_folder, checkpoints_of_run, options_of
from ..columns import COMPARED, METRICS, column_titles
from ..data.vocabulary import GROUP_MEANINGS, GROUPINGS
from ..errors import UserError
from ..evaluation import Result
from ..evaluation.inputs import check_row_names, load_vocabulary
from ..evaluation.neighbors import NoWord
from ..evaluation.text_metrics import read_texts
from ..files import atomic_write
from ..names import HUMAN, UNIGRAM
from ..result import BETTER, RULE, SAME, UNDEFINED, WORSE, Compared, SeedValues, compare, format_value

__all__ = ["write_report"]

LOG = "train.log"
MIN_CHECKPOINTS = 3  # the least number of checkpoints of a run whose changes over the updates are shown
MAX_SAMPLES = 3  # the number of texts that are shown side by side
NO_LANGUAGE_MODELS = "These are no language models."
MARKS = {BETTER: "▲ better", WORSE: "▽ worse", SAME: "≈ no clear difference"}
NOT_SETTINGS = frozenset(
    "save_dir log_file handlers tensorboard_logdir user_dir wandb_project distributed_init_method distributed_port "
    "device_id distributed_rank no_progress_bar log_format log_interval num_workers no_epoch_checkpoints".split()
)
"""Options that say where files are and what is printed: they differ between any two runs, and affect no number."""
OFF = frozenset(("None", "0", "0.0", "False", ""))
"""Values of an option that is switched off, which is as if the run did not have it."""


class Table(NamedTuple):
    """A table that can be scrolled sideways where it is too wide."""

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]  # a text, or a title and its metric; then texts, `Compared` values, or None, a dash
    signature: str = ""  # the settings that affect the numbers, shown below the table


class Picture(NamedTuple):
    """A picture, which is in the page itself, its width in inches, and its caption."""

    url: str
    width: float
    caption: str


Block = str | Table | Picture  # a part of a section; a `str` is a paragraph


@dataclass
class Report:
    """What the sections are made from."""

    checkpoints: Mapping[str, Checkpoint]  # of each run the one that is measured, by the name of the run
    data: Path
    split: str
    max_texts: int | None
    device: str | None
    results: Sequence[Result]  # of other commands
    models: Mapping[str, Mapping[str, str]]  # by the title of a model and the seed, the name of a run
    base: str  # the title of the model that the others are compared with
    perplexity: Result | None = None  # once it is measured

    @property
    def is_of_language_models(self) -> bool:
        return next(iter(self.checkpoints.values())).is_language_model

    def logs(self, *numbers: str) -> dict[str, Path]:
        """The logs, by the names of their runs, that have all of these numbers."""
        logs = {name: checkpoint.path.parent / LOG for name, checkpoint in self.checkpoints.items()}
        texts = {name: log.read_text("utf-8", "replace") for name, log in logs.items() if log.is_file()}
        return {name: logs[name] for name, text in texts.items() if all(f'"{number}"' in text for number in numbers)}

    def compare(self, result: Result, metric: str, key: str) -> dict[str, Compared]:
        """A metric of the models that have a number."""
        values = {
            model: SeedValues({s: result.shown(run, metric, key) for s, run in of_seed.items() if run in result.rows})
            for model, of_seed in self.models.items()
        }
        human = result.shown(HUMAN, metric, key) if HUMAN in result.rows else None
        return compare(METRICS[metric], values, self.base, human)

    def table(self, result: Result) -> list[Block]:
        """A row per column of the result, and a column per model and per other row, such as the human texts."""
        if not result.rows.keys() & self.checkpoints.keys():
            return [Table(*result.formatted(), result.signature)]
        others = [row for row in result.rows if row not in self.checkpoints]
        rows: list[list[Any]] = []
        for (metric, key), title in column_titles(result.columns).items():
            cells = [format_value(result.shown(row, metric, key), METRICS[metric].digits) for row in others]
            rows.append([(title, metric), *map(self.compare(result, metric, key).get, self.models), *cells])
        groups = [name for name, setting in GROUPINGS.items() if result.settings.get("groups") == setting]
        meanings = [f"Here, frequent, medium and rare tokens are {GROUP_MEANINGS[name]}." for name in groups]
        return [*meanings, Table(["", *self.models, *map(str, others)], rows, result.signature)]


def verdict(report: Report) -> list[Block]:
    """What came out, in words: each model against the baseline."""
    others = [model for model in report.models if model != report.base]
    if not others:
        return ["There is one model, and nothing to compare it with."]
    # without isoscore, which may rise while predictions become worse (docs/which-cure.md)
    wanted = {metric: keys for metric, keys in COMPARED.items() if metric != "isoscore"}
    wanted |= {"unique_predictions": ["total"], "bleu": [""], "sacrebleu": [""]}
    said: dict[tuple[str, str], list[str]] = {}  # by verdict and model
    for result in filter(None, [report.perplexity, *report.results]):
        titles = column_titles(result.columns)
        for column in filter(titles.__contains__, column_titles(wanted)):
            compared = report.compare(result, *column)
            for model, value in compared.items():
                if value.verdict:
                    change = f"{titles[column]} {value.change} ({compared[report.base].text} → {value.text})"
                    said.setdefault((value.verdict, model), []).append(change)
    rows = [[title, *("; ".join(said.get((word, model), ())) for model in others)] for word, title in MARKS.items()]
    has_seeds = any(len(runs) > 1 for runs in report.models.values())
    caution = "" if has_seeds else " There is one seed of each model: a difference may be chance."
    marks = " In the tables, ▲ is better than the baseline, ▽ is worse, and the best value is bold."
    return [Table([f"against {report.base}", *others], rows), RULE + marks + caution]


def runs_and_settings(report: Report) -> list[Block]:
    """Which checkpoints are measured, and the settings that differ."""
    columns = []
    for checkpoint in report.checkpoints.values():
        extra = checkpoint.state.get("extra_state")
        best = extra.get("best") if isinstance(extra, dict) else None
        best = format_value(float(best), 3) if isinstance(best, float | int) else None
        columns.append([checkpoint.path.name, format_value(checkpoint.updates, 0), best])
    rows = list(zip(("checkpoint", "updates", "best on validation"), *columns, strict=True))
    different = different_settings([checkpoint.state for checkpoint in report.checkpoints.values()])
    alike = "" if different or len(columns) == 1 else "All settings are the same."
    return [Table(["", *report.checkpoints], [*rows, *different]), *filter(None, [alike])]


def settings_of(state: Mapping[str, Any]) -> dict[str, str]:
    """The options of fairseq-train that a checkpoint was trained with, in fairseq's order, and their values.

    An option that is in several sections of the configuration has its value of the first. Options that are switched off
    are left out, and the threshold of AGG if it has the share of the vocabulary instead.
    """
    settings: dict[str, str] = {}
    for section in state.get("cfg") or ["model"]:
        options = options_of(state, section)
        for key, value in options.items():
            name = key if key != "_name" else "arch" if section == "model" else section
            is_unused = name == "agg_alpha" and options.get("agg_rare_fraction") is not None
            text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            if name not in NOT_SETTINGS and text not in OFF and not is_unused:
                settings.setdefault(f"--{name.replace('_', '-')}", text)
    return settings


def different_settings(states: Sequence[Mapping[str, Any]]) -> list[list[str | None]]:
    """The options of fairseq-train that differ between checkpoints, in fairseq's order, each with values or None."""
    settings = [settings_of(state) for state in states]
    names = dict.fromkeys(name for of_state in settings for name in of_state)
    rows = [[name, *(of_state.get(name) for of_state in settings)] for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def models_of_runs(states: Mapping[str, Mapping[str, Any]], baseline: str) -> dict[str, dict[str, str]]:
    """By the title of a model and the seed, the name of a run: runs that differ by the seed alone are one model."""
    alike: dict[frozenset[tuple[str, str]], dict[str, str]] = {}
    for name, state in states.items():
        settings = settings_of(state)
        seed = settings.pop("--seed", "")
        if seed in alike.get(frozenset(settings.items()), {}):  # trained twice with the same seed: another model
            settings["run"] = name
        alike.setdefault(frozenset(settings.items()), {})[seed] = name
    models = {}
    for of_seed in alike.values():
        names = list(of_seed.values())
        notes = [f"{len(names)} seeds"] if len(names) > 1 else []
        notes += ["baseline"] if baseline in names and len(alike) > 1 else []
        models[f"{names[0]} ({', '.join(notes)})" if notes else names[0]] = of_seed
    return models


def learning_curves(report: Report) -> list[Block]:
    """Perplexity over the updates."""
    logs = report.logs("ppl", "valid_ppl")
    if not logs:
        return [f"No run has a log with perplexities; train with --log-format json --log-file SAVE_DIR/{LOG}."]
    missing = [name for name in report.checkpoints if name not in logs]
    caption = "Perplexity over the updates, of the training batches and of the validation split."
    caption += f" Not logged: {', '.join(missing)}." if missing else ""
    return [picture(plots.learning_curves(logs, order=list(report.checkpoints)), caption)]


def picture(figure: plots.style.Figure, caption: str) -> Picture:
    """A figure as SVG."""
    file = io.BytesIO()
    plots.save(figure, file, "svg")
    url = f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
    return Picture(url, figure.get_figwidth(), caption)


def predictions(report: Report) -> list[Block]:
    """Perplexity and distinct predictions by frequency group; the geometry has a section of its own."""
    if not report.is_of_language_models:
        return [NO_LANGUAGE_MODELS]
    text = evaluation.BinarizedText(report.data, report.split)
    report.perplexity = result = evaluation.perplexity(report.checkpoints, text, device=report.device)
    columns = {metric: keys for metric, keys in result.columns.items() if metric not in metrics.Geometry._fields}
    return report.table(replace(result, columns=columns))


def embeddings(report: Report) -> list[Block]:
    """Isotropy, with the pictures of the embedding space."""
    plane = "Token embeddings in the plane of their first two singular directions, at most 2,000 of each group."
    values = "Singular values of the embeddings: the slower they fall, the more isotropic are the embeddings."
    return [
        *report.table(evaluation.isotropy(report.checkpoints, report.data)),
        picture(plots.projection(report.checkpoints, report.data), plane),
        picture(plots.singular_values(report.checkpoints), values),
    ]


def over_updates(report: Report) -> list[Block]:
    """How the embeddings changed during the training of the runs that saved enough checkpoints."""
    of_runs = {name: checkpoints_of_run(run.path.parent, opened=[run]) for name, run in report.checkpoints.items()}
    enough = {name: checkpoints for name, checkpoints in of_runs.items() if len(checkpoints) >= MIN_CHECKPOINTS}
    if not enough:
        remedy = "train with --save-interval-updates N --keep-interval-updates -1"
        return [f"No run has {MIN_CHECKPOINTS} checkpoints or more; {remedy}."]
    isotropy = plots.isotropy_over_updates(enough, report.data, order=list(report.checkpoints))
    products = plots.inner_products_over_updates(enough, report.data)
    return [
        picture(isotropy, "Isotropy of frequent and of rare embeddings, and the mean cosine between them."),
        picture(products, "Mean inner product between embeddings of the same frequency group."),
    ]


def rare_group(report: Report) -> list[Block]:
    """How many tokens were in the rare group of adaptive gradient gating."""
    logs = report.logs("rare_tokens")
    if not logs:
        return [f"No run has a log ({LOG}) of a training with AGG."]
    figure = plots.rare_tokens(logs, order=list(report.checkpoints))
    return [picture(figure, "Size of the rare group of AGG. It is another group than the rare tokens of the tables.")]


def nearest_neighbors(report: Report) -> list[Block]:
    """The nearest neighbors of three rare words, and their similarity to all other tokens."""
    try:
        result = evaluation.neighbors(report.checkpoints, report.data)
    except NoWord as error:
        return [str(error)]
    words = dict.fromkeys(row["tokens"][0]["token"] for row in result.rows.values())
    figure = plots.similarity(report.checkpoints, report.data, words=list(words))
    return [*report.table(result), picture(figure, "Cosine of these words with every token, by its frequency rank.")]


def generated_texts(report: Report) -> list[Block]:
    """What the models write: measures of the texts, how rare their words are, and samples side by side."""
    if not report.is_of_language_models:
        return [NO_LANGUAGE_MODELS]
    options = {"split": report.split, "max_texts": report.max_texts, "device": report.device}
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder, f"{number}.jsonl") for number, name in enumerate(report.checkpoints)}
        for name, file in files.items():
            evaluation.generate_texts(report.checkpoints[name], report.data, file, **options)
        result = evaluation.text_metrics(files, report.data)
        texts = [read_texts(file) for file in files.values()]
    caption = "Share of tokens by their part of the training text: the top 40%, next 30%, next 20% and last 10%."
    samples = []  # evenly spread over the texts
    for index in sorted({(2 * part + 1) * len(texts[0]) // (2 * MAX_SAMPLES) for part in range(MAX_SAMPLES)}):
        first, *others = [of_run[index] for of_run in texts]
        cells = [first["prefix"], *(text["continuation"] for text in (first, *others)), first["reference"]]
        samples.append(list(map(running_text, cells)))
    return [
        *report.table(result),
        picture(plots.token_shares({"the generated texts": result}), caption),
        Table(["prefix", *report.checkpoints, HUMAN], samples),
    ]


def running_text(text: str) -> str:
    """Tokens as a text: sub-words of sentencepiece, of GPT-2's vocabulary and of subword-nmt are put together."""
    for space in ("▁", "Ġ"):
        if space in text:
            return text.replace(" ", "").replace(space, " ").strip()
    return text.replace("@@ ", "")


def other_results(report: Report) -> list[Block]:
    """Results of other commands."""
    tables = [block for result in report.results for block in report.table(result)]
    return tables or ["No --results of other commands were given, such as those of bleu --json."]


def frequencies(report: Report) -> list[Block]:
    """How often each token occurs."""
    figure = plots.frequencies({report.data.resolve().name: report.data})
    return [picture(figure, "Occurrences of each token in the training split, by rank.")]


SECTIONS: Mapping[str, Callable[[Report], list[Block]]] = {
    "Runs and settings": runs_and_settings,
    "Learning curves": learning_curves,
    "Perplexity and predictions": predictions,
    "Embeddings": embeddings,
    "Embeddings during training": over_updates,
    "The rare group": rare_group,
    "Nearest neighbors": nearest_neighbors,
    "Generated texts": generated_texts,
    "Other results": other_results,
    "Token frequencies": frequencies,
    "What came out": verdict,
}
"""The functions that make the sections by their titles. The last one, which needs the others, is the first of the page.
"""


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
        results: what other commands wrote to --json, such as `bleu` or `word-similarity`; rows have names of runs.

    Returns:
        The errors that kept sections from being shown; the page has them in their place.
    """
    import jinja2

    check_row_names(runs, HUMAN, UNIGRAM)
    baseline = baseline or next(iter(runs))
    if baseline not in runs:
        raise UserError(f"--baseline: found {baseline!r}; expected the name of a run: {', '.join(runs)}")
    for folder in runs.values():
        check_run_folder(Path(folder))
    checkpoints = {name: Checkpoint(folder, training_state=False) for name, folder in runs.items()}
    load_vocabulary(checkpoints, data)  # they are of one task, and the data is theirs
    models = models_of_runs({name: checkpoint.state for name, checkpoint in checkpoints.items()}, baseline)
    base = next(title for title, of_seed in models.items() if baseline in of_seed.values())
    report = Report(checkpoints, Path(data), split, max_texts, device, results, models, base)

    sections, errors = {}, []
    for title, make in tqdm(SECTIONS.items(), desc="report", unit="section", disable=None, leave=False):
        try:
            sections[title] = make(report)
        except UserError as error:  # the other sections are worth having
            sections[title] = [f"error: {error}"]
            errors.append(error)
    *titles, first = SECTIONS
    sections = {title: sections[title] for title in (first, *titles)}
    tables = [block for blocks in sections.values() for block in blocks if isinstance(block, Table)]
    terms = [row[0][1] for table in tables for row in table.rows if isinstance(row[0], tuple)]
    layout = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    html = environment.from_string(layout).render(
        title=f"Comparison of {', '.join(models)}" if len(models) > 1 else next(iter(runs)),
        sections=sections,
        glossary={name: METRICS[name] for name in terms},
        undefined=UNDEFINED,
        footer=f"agg-fairseq {__version__} report, {time.strftime('%Y-%m-%d %H:%M')}; data: {data}; split: {split}",
    )
    atomic_write(output, lambda temporary: temporary.write_text(html, "utf-8", "backslashreplace"))
    return errors
