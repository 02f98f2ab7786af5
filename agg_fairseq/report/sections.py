"""The sections of a report: functions from a `Report` to the blocks that they show.

A section raises `NotShown` where there is nothing to show, or an error of the evaluations; both cost only this section.
"""

from __future__ import annotations

import base64
import contextlib
import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import evaluation, metrics, plots
from ..checkpoints.fairseq_checkpoint import Checkpoint, checkpoints_of_run
from ..columns import COMPARED, METRICS, column_titles
from ..data.vocabulary import GROUP_MEANINGS, GROUPINGS
from ..errors import UserError
from ..evaluation import Result
from ..evaluation.neighbors import NoWord
from ..evaluation.text_metrics import read_texts
from ..names import HUMAN
from ..result import BETTER, RULE, SAME, WORSE, Compared, SeedValues, compare, format_value
from .settings import different_settings, settings_of, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOG = "train.log"
MIN_CHECKPOINTS = 3  # the least number of checkpoints of a run whose changes over the updates are shown
MAX_SAMPLES = 3  # the number of texts that are shown side by side
MARKS = {BETTER: "▲ better", WORSE: "▽ worse", SAME: "≈ no clear difference"}


class NotShown(Exception):
    """The reason why there is nothing to show in a section."""


class Table(NamedTuple):
    """A table that can be scrolled sideways where it is too wide."""

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]  # a text, or a title and its metric; then texts, `Compared` values, or None, a dash
    signature: str = ""  # the settings that affect the numbers, shown below the table


class Picture(NamedTuple):
    """A figure, which is written into the page itself, and its caption."""

    figure: Figure
    caption: str

    @property
    def url(self) -> str:
        """The figure as SVG."""
        file = io.BytesIO()
        plots.save(self.figure, file, "svg")
        return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


Block = str | Table | Picture  # a part of a section; a `str` is a paragraph


@dataclass(frozen=True)
class Report:
    """What the sections are made from.

    Args:
        checkpoints: of each run the one that is measured, by the name of the run; all of the same task.
        split: to evaluate and to continue.
        baseline: the run that the others are compared with; None: the first.
        tokens_per_sample: of the perplexity; None: as in training.
        max_texts: number of texts that each language model continues; None: all.
        results: what other commands wrote to --json, such as `bleu` or `word-similarity`; rows have names of runs.
    """

    checkpoints: Mapping[str, Checkpoint]
    data: Path
    split: str = "test"
    baseline: str | None = None
    tokens_per_sample: int | None = None
    max_texts: int | None = None
    results: Sequence[Result] = ()
    device: str | None = None

    def __post_init__(self) -> None:
        if self.baseline not in (None, *self.checkpoints):
            expected = ", ".join(self.checkpoints)
            raise UserError(f"--baseline: found {self.baseline!r}; expected the name of a run: {expected}")

    @cached_property
    def models(self) -> dict[str, dict[str, str]]:
        """By the title of a model and the seed, the name of a run: runs that differ by the seed alone are one model."""
        alike: dict[frozenset[tuple[str, str]], dict[str, str]] = {}
        for name, checkpoint in self.checkpoints.items():
            settings = settings_of(checkpoint.state)
            seed = settings.pop("--seed", "")
            if seed in alike.get(frozenset(settings.items()), {}):  # trained twice with the same seed: another model
                settings["run"] = name
            alike.setdefault(frozenset(settings.items()), {})[seed] = name
        base, models = self.baseline or next(iter(self.checkpoints)), {}
        for of_seed in alike.values():
            names = list(of_seed.values())
            notes = [f"{len(names)} seeds"] if len(names) > 1 else []
            notes += ["baseline"] if base in names and len(alike) > 1 else []
            models[f"{names[0]} ({', '.join(notes)})" if notes else names[0]] = of_seed
        return models

    @property
    def base(self) -> str:
        """The title of the model that the others are compared with."""
        name = self.baseline or next(iter(self.checkpoints))
        return next(title for title, of_seed in self.models.items() if name in of_seed.values())

    @cached_property
    def perplexity(self) -> Result:
        """Of language models."""
        self.check_language_models()
        text = evaluation.BinarizedText(self.data, self.split, self.tokens_per_sample)
        return evaluation.perplexity(self.checkpoints, text, device=self.device)

    def check_language_models(self) -> None:
        """Raises NotShown for translation models."""
        if not next(iter(self.checkpoints.values())).is_language_model:
            raise NotShown("these are no language models")

    def logs(self, *numbers: str) -> dict[str, Path]:
        """The logs, by the names of their runs, that have all of these numbers."""
        logs = {name: checkpoint.path.parent / LOG for name, checkpoint in self.checkpoints.items()}
        texts = {name: log.read_text("utf-8", "replace") if log.is_file() else "" for name, log in logs.items()}
        found = {name: logs[name] for name, text in texts.items() if all(f'"{number}"' in text for number in numbers)}
        if not found:
            remedy = f"train with --log-format json --log-file SAVE_DIR/{LOG}"
            raise NotShown(f"no run has a {LOG} with {' and '.join(numbers)}; {remedy}")
        return found

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
        raise NotShown("there is one model, and nothing to compare it with")
    results = list(report.results)
    with contextlib.suppress(NotShown, UserError):  # which the section of the perplexity reports
        results.insert(0, report.perplexity)
    # without isoscore, which may rise while predictions become worse (docs/which-cure.md)
    wanted = {metric: keys for metric, keys in COMPARED.items() if metric != "isoscore"}
    wanted |= {"unique_predictions": ["total"], "bleu": [""], "sacrebleu": [""]}
    said: dict[tuple[str, str], list[str]] = {}  # by verdict and model
    for result in results:
        titles = column_titles(result.columns)
        for column in filter(titles.__contains__, column_titles(wanted)):
            compared = report.compare(result, *column)
            for model, value in compared.items():
                both = f"{compared[report.base].text} → {value.text}" if value.verdict else ""
                said.setdefault((value.verdict, model), []).append(f"{titles[column]} {value.change} ({both})")
    rows = [[title, *("; ".join(said.get((word, model), ())) for model in others)] for word, title in MARKS.items()]
    if not said.keys() - {("", model) for model in report.models}:
        raise NotShown("nothing could be measured that has a better and a worse direction")
    has_seeds = any(len(runs) > 1 for runs in report.models.values())
    caution = "" if has_seeds else " There is one seed of each model: a difference may be chance."
    marks = " In the tables, ▲ is better than the baseline, ▽ is worse, and the best value is bold."
    return [Table([f"against {report.base}", *others], rows), RULE + marks + caution]


def runs(report: Report) -> list[Block]:
    """What each run is, and the settings that differ."""
    header, states = ["", *report.checkpoints], [checkpoint.state for checkpoint in report.checkpoints.values()]
    blocks: list[Block] = [Table(header, summary(report.checkpoints.values()))]
    if different := different_settings(states):
        return [*blocks, "Options of fairseq-train that are not the same in all runs:", Table(header, different)]
    return [*blocks, "All settings are the same."] if len(states) > 1 else blocks


def learning_curves(report: Report) -> list[Block]:
    """Perplexity over the updates."""
    logs = report.logs("ppl", "valid_ppl")
    caption = "Perplexity over the updates, of the training batches and of the validation split."
    missing = [name for name in report.checkpoints if name not in logs]
    caption += f" Not logged: {', '.join(missing)}." if missing else ""
    return [Picture(plots.learning_curves(logs, order=list(report.checkpoints)), caption)]


def predictions(report: Report) -> list[Block]:
    """Perplexity and distinct predictions by frequency group; the geometry has a section of its own."""
    result = report.perplexity
    columns = {metric: keys for metric, keys in result.columns.items() if metric not in metrics.Geometry._fields}
    return report.table(replace(result, columns=columns))


def embeddings(report: Report) -> list[Block]:
    """Isotropy, with the pictures of the embedding space."""
    plane = "Token embeddings in the plane of their first two singular directions, at most 2,000 of each group."
    values = "Singular values of the embeddings: the slower they fall, the more isotropic are the embeddings."
    return [
        *report.table(evaluation.isotropy(report.checkpoints, report.data)),
        Picture(plots.projection(report.checkpoints, report.data), plane),
        Picture(plots.singular_values(report.checkpoints), values),
    ]


def over_updates(report: Report) -> list[Block]:
    """How the embeddings changed during the training of the runs that saved enough checkpoints."""
    of_runs = {name: checkpoints_of_run(run.path.parent, opened=[run]) for name, run in report.checkpoints.items()}
    enough = {name: checkpoints for name, checkpoints in of_runs.items() if len(checkpoints) >= MIN_CHECKPOINTS}
    if not enough:
        remedy = "train with --save-interval-updates N --keep-interval-updates -1"
        raise NotShown(f"no run has {MIN_CHECKPOINTS} checkpoints or more; {remedy}")
    isotropy = plots.isotropy_over_updates(enough, report.data, order=list(report.checkpoints))
    return [
        Picture(isotropy, "Isotropy of frequent and of rare embeddings, and the mean cosine between them."),
        Picture(
            plots.inner_products_over_updates(enough, report.data),
            "Mean inner product between embeddings of the same frequency group.",
        ),
    ]


def rare_group(report: Report) -> list[Block]:
    """How many tokens were in the rare group of adaptive gradient gating."""
    figure = plots.rare_tokens(report.logs("rare_tokens"), order=list(report.checkpoints))
    return [Picture(figure, "Size of the rare group of AGG. It is another group than the rare tokens of the tables.")]


def nearest_neighbors(report: Report) -> list[Block]:
    """The nearest neighbors of three rare words, and their similarity to all other tokens."""
    try:
        result = evaluation.neighbors(report.checkpoints, report.data)
    except NoWord as error:
        raise NotShown(str(error)) from error
    words = dict.fromkeys(row["tokens"][0]["token"] for row in result.rows.values())
    figure = plots.similarity(report.checkpoints, report.data, words=list(words))
    return [*report.table(result), Picture(figure, "Cosine of these words with every token, by its frequency rank.")]


def generated_texts(report: Report) -> list[Block]:
    """What the models write: measures of the texts, how rare their words are, and samples side by side."""
    report.check_language_models()
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
        records = [of_run[index] for of_run in texts]
        continuations = [record["continuation"] for record in records]
        samples.append([*map(_join_subwords, [records[0]["prefix"], *continuations, records[0]["reference"]])])
    return [
        *report.table(result),
        Picture(plots.token_shares({"the generated texts": result}), caption),
        Table(["prefix", *report.checkpoints, HUMAN], samples),
    ]


def _join_subwords(text: str) -> str:
    """Tokens as running text: sub-words of sentencepiece, of GPT-2's vocabulary and of subword-nmt are put together."""
    for space in ("▁", "Ġ"):
        if space in text:
            return text.replace(" ", "").replace(space, " ").strip()
    return text.replace("@@ ", "")


def other_results(report: Report) -> list[Block]:
    """Results of other commands."""
    if not report.results:
        raise NotShown("no --results of other commands were given, such as those of bleu --json")
    return [block for result in report.results for block in report.table(result)]


def frequencies(report: Report) -> list[Block]:
    """How often each token occurs."""
    figure = plots.frequencies({report.data.resolve().name: report.data})
    return [Picture(figure, "Occurrences of each token in the training split, by rank.")]


SECTIONS: Mapping[str, Callable[[Report], list[Block]]] = {
    "What came out": verdict,
    "Runs and settings": runs,
    "Learning curves": learning_curves,
    "Perplexity and predictions": predictions,
    "Embeddings": embeddings,
    "Embeddings during training": over_updates,
    "The rare group": rare_group,
    "Nearest neighbors": nearest_neighbors,
    "Generated texts": generated_texts,
    "Other results": other_results,
    "Token frequencies": frequencies,
}
"""The functions that make the sections by their titles, in the order of the page."""
