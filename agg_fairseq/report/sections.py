"""The sections of a report.

Each section is a function from `ReportInputs` to the blocks that it shows. It raises `NotShown` where there is nothing
to show, or an error of the evaluations; both cost only this section.
"""

import contextlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .. import evaluation, plots
from ..checkpoints.fairseq_checkpoint import Checkpoint
from ..data.subwords import WORDS, TokenizerOptions
from ..data.vocabulary import GROUP_MEANINGS, GROUPINGS
from ..data.word_pairs import dataset_files
from ..errors import UserError
from ..evaluation import Cache, Result
from ..evaluation.fairseq_logs import read_translations
from ..evaluation.neighbors import NoWord
from ..evaluation.text_metrics import read_texts
from ..measures import COMPARED
from ..metrics import Geometry
from ..names import HUMAN
from .comparison import RULE, Comparison
from .page import Block, Picture, Samples, Table
from .runs import LOG, Run, different_settings, summary

MIN_CHECKPOINTS = 3  # the least number of checkpoints of a run whose changes over the updates are shown
MAX_SAMPLES = 3  # the number of texts that are shown side by side


@dataclass(frozen=True)
class ReportOptions:
    """What a report shows beside the runs themselves: options of the evaluations, with their defaults."""

    split: str = "test"  # to evaluate and to continue
    groups: str | None = None  # one of `data.vocabulary.GROUPINGS`; None: the default of each evaluation
    tokens_per_sample: int | None = None  # of the perplexity
    words: Sequence[str] | None = None  # whose nearest neighbors are shown
    datasets: Sequence[str | Path] | None = None  # of word similarity
    tokenizer: TokenizerOptions = WORDS
    max_texts: int | None = None  # of each language model; None: all
    translations: Sequence[str | Path] | None = None  # outputs of fairseq-generate, one per run
    reference: str | Path | None = None  # of the translations, for sacreBLEU
    moses: str | None = None  # language of the translations, which are detokenized
    alignments: str | Path | None = None  # of the words of the training split, for AlignSim
    device: str | None = None
    baseline: str | None = None  # the run that the others are compared with; None: the first


class ReportInputs(NamedTuple):
    """What the sections are made from."""

    runs: Sequence[Run]  # all of the same task
    data: Path
    options: ReportOptions
    cache: Cache  # results and texts of earlier reports
    comparison: Comparison  # which runs are of the same model, and which one the others are compared with

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        """The checkpoint of each run that is measured, by the name of the run."""
        return {run.name: run.checkpoint for run in self.runs}

    @property
    def names(self) -> list[str]:
        """The names of the runs, whose order gives each its color in all pictures."""
        return [run.name for run in self.runs]

    def evaluate(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """The result of an evaluation, with the frequency groups of the report if it has groups and they are given."""
        if "groups" in inspect.signature(function).parameters:
            options |= self.groups
        return self.cache.result(function, *arguments, **options)

    @property
    def groups(self) -> dict[str, str]:
        """The option `groups`, where it is given."""
        return {} if self.options.groups is None else {"groups": self.options.groups}

    def chosen(self, *names: str) -> dict[str, Any]:
        """Some of the options, by their names."""
        return {name: getattr(self.options, name) for name in names}


class NotShown(Exception):
    """The reason why there is nothing to show in a section."""


def verdict(report: ReportInputs) -> list[Block]:
    """What came out, in words: each model against the baseline."""
    if len(report.comparison.models) < 2:
        raise NotShown("there is one model, and nothing to compare it with")
    # The same results as in the sections below, which report the errors of their measurements.
    results: list[Result] = []
    for evaluate in (_perplexity, _bleu):
        with contextlib.suppress(NotShown, UserError):
            results.append(evaluate(report))
    columns = {**COMPARED, "unique_predictions": ["total"], "bleu": [""], "sacrebleu": [""]}
    del columns["isoscore"]  # may rise while predictions become worse (docs/which-cure.md)
    verdicts = report.comparison.verdicts(results, columns)
    if not verdicts:
        raise NotShown("nothing could be measured that has a better and a worse direction")
    has_seeds = any(len(runs) > 1 for runs in report.comparison.models.values())
    caution = "" if has_seeds else " There is one seed of each model: a difference may be chance."
    return [*verdicts, RULE + caution]


def overview(report: ReportInputs) -> list[Block]:
    """What each run is, and the settings that differ."""
    header = ["", *report.names]
    blocks: list[Block] = [Table(header, summary(report.runs))]
    if different := different_settings([run.checkpoint.state for run in report.runs]):
        rows = [[name, *values] for name, values in different]
        return [*blocks, "Options of fairseq-train that are not the same in all runs:", Table(header, rows)]
    return [*blocks, "All settings are the same."] if len(report.runs) > 1 else blocks


def learning_curves(report: ReportInputs) -> list[Block]:
    """Perplexity over the updates."""
    both = [run for run in report.runs if run.has_logged("train_inner", "ppl") and run.has_logged("valid", "ppl")]
    logs = {run.name: run.log for run in both}
    if not logs:
        remedy = f"train with --log-format json --log-file SAVE_DIR/{LOG}"
        raise NotShown(f"no run has a {LOG} with training and validation lines; {remedy}")
    caption = "Perplexity over the updates, of the training batches and of the validation split."
    missing = [name for name in report.names if name not in logs]
    figure = plots.learning_curves(logs, order=report.names)
    return [Picture(figure, caption + (f" Not logged: {', '.join(missing)}." if missing else ""))]


def _groups(result: Result) -> list[Block]:
    """What "frequent", "medium" and "rare" mean in the table of a result."""
    names = [name for name, setting in GROUPINGS.items() if result.settings.get("groups") == setting]
    return [f"Here, frequent, medium and rare tokens are {GROUP_MEANINGS[name]}." for name in names]


def _perplexity(report: ReportInputs) -> Result:
    if not report.runs[0].checkpoint.is_language_model:
        raise NotShown("these are no language models")
    text = evaluation.BinarizedText(report.data, **report.chosen("split", "tokens_per_sample"))
    return report.evaluate(evaluation.perplexity, report.checkpoints, text, **report.chosen("device"))


def _bleu(report: ReportInputs) -> Result:
    if report.options.translations is None:
        raise NotShown("no --translations, the outputs of fairseq-generate, were given")
    logs = dict(zip(report.names, map(Path, report.options.translations), strict=True))
    return report.evaluate(evaluation.bleu, logs, **report.chosen("reference", "moses"))


def language_model(report: ReportInputs) -> list[Block]:
    """Perplexity and distinct predictions by frequency group; isotropy has a section of its own."""
    result = _perplexity(report)
    return [*_groups(result), report.comparison.table(result, left_out=Geometry._fields)]


def translations(report: ReportInputs) -> list[Block]:
    """BLEU of logs of fairseq-generate, and some translations side by side."""
    blocks: list[Block] = [report.comparison.table(_bleu(report))]
    read = list(map(read_translations, report.options.translations))
    first = read[0]
    for index in _evenly_spread(len(first.references)):
        texts = [(name, log.texts[index]) for name, log in zip(report.names, read, strict=True)]
        context = first.sources[index] if first.sources else f"sentence {index + 1}"
        blocks.append(Samples(context, [*texts, ("reference", first.references[index])]))
    return blocks


def embeddings(report: ReportInputs) -> list[Block]:
    """Isotropy, with the pictures of the embedding space."""
    result = report.evaluate(evaluation.isotropy, report.checkpoints, report.data)
    return [
        *_groups(result),
        report.comparison.table(result),
        Picture(
            plots.projection(report.checkpoints, report.data, **report.groups),
            "Token embeddings in the plane of their first two singular directions, at most 2,000 of each group; the "
            "middle 99% along each axis.",
        ),
        Picture(
            plots.singular_values(report.checkpoints),
            "Singular values of the embeddings: the slower they fall, the more isotropic are the embeddings.",
        ),
    ]


def over_updates(report: ReportInputs) -> list[Block]:
    """How the embeddings changed during the training of the runs that saved enough checkpoints."""
    runs = {run.name: run.checkpoints for run in report.runs if len(run.checkpoints) >= MIN_CHECKPOINTS}
    if not runs:
        remedy = "train with --save-interval-updates N --keep-interval-updates -1"
        raise NotShown(f"no run has {MIN_CHECKPOINTS} checkpoints or more; {remedy}")
    return [
        Picture(
            plots.isotropy_over_updates(runs, report.data, order=report.names, **report.groups),
            "Isotropy of frequent and of rare embeddings, and the mean cosine between them.",
        ),
        Picture(
            plots.inner_products_over_updates(runs, report.data, **report.groups),
            "Mean inner product between embeddings of the same frequency group.",
        ),
    ]


def rare_group(report: ReportInputs) -> list[Block]:
    """How many tokens were in the rare group of adaptive gradient gating."""
    logs = {run.name: run.log for run in report.runs if run.has_logged("train_inner", "rare_tokens")}
    if not logs:
        raise NotShown(f"no run has a {LOG} with rare_tokens, which --criterion agg logs")
    caption = (
        "Size of the rare group, which adaptive gradient gating chooses again at every update. It is another group "
        "than the rare tokens of the tables."
    )
    return [Picture(plots.rare_tokens(logs, order=report.names), caption)]


def nearest_neighbors(report: ReportInputs) -> list[Block]:
    """The nearest neighbors of some words, and their similarity to all other tokens."""
    try:
        options = report.chosen("words", "tokenizer")
        result = report.evaluate(evaluation.neighbors, report.checkpoints, report.data, **options)
    except NoWord as error:
        raise NotShown(str(error)) from error
    blocks: list[Block] = [*_groups(result), Table(*result.formatted(), result.signature)]
    tokens = dict.fromkeys(row["tokens"][0]["token"] for row in result.rows.values() if len(row["tokens"]) == 1)
    if tokens:
        figure = plots.similarity(report.checkpoints, report.data, words=list(tokens), **report.groups)
        caption = "Cosine of the words above with every token, by its frequency rank."
        blocks.append(Picture(figure, caption))
    return blocks


def similar_words(report: ReportInputs) -> list[Block]:
    """Agreement with people on which words are similar."""
    if report.options.datasets is None:
        raise NotShown("no --datasets were given")
    files, options = dataset_files(report.options.datasets), report.chosen("tokenizer")
    result = report.evaluate(evaluation.word_similarity, report.checkpoints, report.data, files, **options)
    return [report.comparison.table(result)]


def aligned_words(report: ReportInputs) -> list[Block]:
    """How similar the embeddings of words are that are translations of each other."""
    if report.options.alignments is None:
        raise NotShown("no --alignments were given")
    result = report.evaluate(evaluation.align_sim, report.checkpoints, report.data, report.options.alignments)
    return [*_groups(result), report.comparison.table(result)]


def generated_texts(report: ReportInputs) -> list[Block]:
    """What the models write: measures of the texts, how rare their words are, and samples side by side."""
    if not report.runs[0].checkpoint.is_language_model:
        raise NotShown("these are no language models")
    options = report.chosen("split", "max_texts", "device")
    files, write = {}, evaluation.generate_texts
    for number, run in enumerate(report.runs, 1):
        files[run.name] = report.cache.file(f"texts-{number}.jsonl", write, run.checkpoint, report.data, **options)
    result = report.evaluate(evaluation.text_metrics, files, report.data)
    caption = "Share of tokens by their part of the training text: the top 40%, next 30%, next 20% and last 10%."
    shares = plots.token_shares({"the generated texts": result})
    blocks: list[Block] = [report.comparison.table(result), Picture(shares, caption)]
    texts = {name: read_texts(path) for name, path in files.items()}
    first = next(iter(texts.values()))
    for index in _evenly_spread(len(first)):
        boxes = [(name, of_run[index]["continuation"]) for name, of_run in texts.items()]
        boxes.append((HUMAN, first[index]["reference"]))
        titled = [(f"{name}, {len(set(text.split()))} different tokens", _join_subwords(text)) for name, text in boxes]
        blocks.append(Samples(f"{_join_subwords(first[index]['prefix'])} …", titled))
    return blocks


def frequencies(report: ReportInputs) -> list[Block]:
    """How often each token occurs."""
    figure = plots.frequencies({report.data.resolve().name: report.data})
    return [Picture(figure, "Occurrences of each token in the training split, by rank.")]


def _evenly_spread(count: int) -> list[int]:
    """The indices of up to three of so many texts, evenly spread over them."""
    return sorted({(2 * part + 1) * count // (2 * MAX_SAMPLES) for part in range(MAX_SAMPLES)})


def _join_subwords(text: str) -> str:
    """Tokens as running text: sub-words of sentencepiece, of GPT-2's vocabulary and of subword-nmt are put together."""
    for space in ("▁", "Ġ"):
        if space in text:
            return text.replace(" ", "").replace(space, " ").strip()
    return text.replace("@@ ", "")


SECTIONS: dict[str, tuple[str, Callable[[ReportInputs], list[Block]]]] = {
    "verdict": ("What came out", verdict),
    "runs": ("Runs and settings", overview),
    "learning-curves": ("Learning curves", learning_curves),
    "language-model": ("Perplexity and predictions", language_model),
    "translations": ("Translations", translations),
    "embeddings": ("Embeddings", embeddings),
    "over-updates": ("Embeddings during training", over_updates),
    "rare-group": ("The rare group", rare_group),
    "neighbors": ("Nearest neighbors", nearest_neighbors),
    "word-similarity": ("Word similarity", similar_words),
    "alignment": ("Similarity of aligned words", aligned_words),
    "texts": ("Generated texts", generated_texts),
    "frequencies": ("Token frequencies", frequencies),
}
"""By anchor the title of a section and the function that makes it, in the order of the page."""
