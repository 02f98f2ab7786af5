"""What an experiment is made of: models to train, measures and pictures of them, and the numbers of the paper."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agg_fairseq.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from agg_fairseq.evaluation import Result

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
SCALES = ("paper", "small", "tiny")

Value = float | int | str | None
"""A measured number, or a word; None if it is not defined."""


@dataclass(frozen=True)
class Corpus:
    """A corpus, and the program that prepares it.

    Args:
        name: of its folder in `data/`.
        program: module of `scripts.data`, and its first arguments.
        tokenizer: as the manifest of the prepared folder names it.
        parallel: whether it has two languages.
        options: of the program, for a corpus of our own experiments, which is prepared in their output folder. None: a
            corpus of the papers, which the scale decides on.
        entries: of its dictionary, as the papers have it; for estimates of what a training takes.
        tokens: of its training split, likewise.
        disk: bytes of its downloads and of its prepared folder, likewise.
    """

    name: str
    program: tuple[str, ...]
    tokenizer: str
    parallel: bool = False
    options: tuple[str, ...] | None = None
    entries: int = 8000
    tokens: int = 0
    disk: float = 0.0


@dataclass(frozen=True)
class Model:
    """A training.

    Args:
        name: of its folder. Two models of the same name differ only in how they are evaluated.
        config: file under `configs/`, without ending.
        corpus: that it is trained on.
        overrides: of the configuration, at every scale.
        scaled: further overrides by scale: what depends on the size of the corpus or of an update.
        scales: at which it is trained.
        start: model from whose best checkpoint the training starts.
        convert: whether that is first given the factorized output layer.
        decoding: of texts by a factorized output layer: `decoupled`, `joint`, or as for an ordinary one.
        greedy: whether texts always take the most probable token, also in a table of sampled texts.
        cache: of the evaluation of a language model: size, theta and lambda of a continuous cache.
        averaged: number of the last checkpoints of a translation model that are averaged; 0: the best one is used.
        every_seed: whether it is trained with each of several seeds, or with the first one alone.
        corpus_only: whether nothing is trained, since only the corpus is looked at.
    """

    name: str
    config: str
    corpus: Corpus
    overrides: tuple[str, ...] = ()
    scaled: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    scales: tuple[str, ...] = SCALES
    start: Model | None = None
    convert: bool = False
    decoding: str | None = None
    greedy: bool = False
    cache: tuple[int, float, float] | None = None
    averaged: int = 5
    every_seed: bool = True
    corpus_only: bool = False


def model_of(config: str, corpus: Corpus, *overrides: str, suffix: str = "", **options: Any) -> Model:
    """A model named after the file of its configuration, and `suffix`, which tells several of one file apart."""
    return Model(f"{Path(config).name}{suffix}", config, corpus, overrides, **options)


@dataclass(frozen=True)
class Workspace:
    """Where and how experiments are run.

    Args:
        scale: one of `SCALES`.
        output: folder of everything that is made: a folder per model, corpora, tables.
        data: what the user gave as `--data`.
        overrides: of every training, from the command line.
        train: whether to train what is missing; otherwise only what is there is measured.
        dry: whether only to print what would be done.
        gpus: of each training; None: all that are visible.
        seed: of trainings and texts; None: as the configurations and evaluations have it.
        models: folder in `output` of the models, if they are not in `output` itself: one for each of several seeds.
        signatures: of the evaluations that were made, in order.
        prepared: the prepared corpora that were looked at, by folder.
    """

    scale: str
    output: Path
    data: Path | None = None
    overrides: tuple[str, ...] = ()
    train: bool = True
    dry: bool = False
    gpus: int | None = None
    seed: int | None = None
    models: str = ""
    signatures: dict[str, None] = field(default_factory=dict)
    prepared: dict[Path, Any] = field(default_factory=dict)

    def folder(self, model: Model) -> Path:
        """The folder of a model's checkpoints, logs and results."""
        return self.output / self.models / model.name

    def name(self, model: Model) -> str:
        """The model as progress and errors name it."""
        return f"{self.models}/{model.name}" if self.models else model.name


def say(text: str) -> None:
    """Prints a line of progress to standard error."""
    sys.stderr.write(f"reproduce: {text}\n")  # one call, so that trainings side by side do not share a line
    sys.stderr.flush()


def check_path(folder: Path) -> None:
    """Checks that fairseq can take a folder: it splits paths of data at colons, and hydra replaces `${…}`.

    Raises:
        UserError: it cannot.
    """
    if any(part in str(folder) for part in (":", "${", "\n")):
        raise UserError(
            f"found the folder {str(folder)!r}; expected a path without ':', '${{' and line ends: fairseq cannot take "
            "these; name others with --output and --data"
        )


def failed(what: str, status: int, log: Path) -> UserError:
    """Prints the last 15 lines of the log of a command that failed, and returns the error to raise."""
    with open(log, encoding="utf-8", errors="replace") as file:
        print("\n".join(file.read().splitlines()[-15:]), file=sys.stderr)
    return UserError(f"{what} failed (status {status}); its output is in {log}; run it again to go on")


@dataclass(frozen=True)
class Measure:
    """A value of each model: a column of a table.

    Args:
        label: its title in the table.
        evaluate: the evaluation of a model that it is read from.
        column: title of the column of the Result; or a function that reads the value from the Result.
        digits: decimals of our number.
        relative: whether changes of it are given in percent; otherwise as differences.
    """

    label: str
    evaluate: Callable[[Workspace, Model], Result]
    column: str | Callable[[Result], Value]
    digits: int = 2
    relative: bool = False

    def value(self, workspace: Workspace, model: Model, row: str) -> Value:
        """The value in the row of the model, or in that of the human text; None where there is none."""
        result = self.evaluate(workspace, model)
        if callable(self.column):
            return self.column(result)
        return result[row][self.column] if row in result.rows else None


@dataclass(frozen=True)
class Method:
    """One of the methods that are compared: a row of a table.

    Args:
        label: its title in the table.
        model: ours; None for a system of others that the paper quotes, which the table marks as `quoted`.
        paper: the paper's numbers, as printed, in the order of the measures; None where there is none.
        human: whether this is the human text. `model` is then one that was measured on it.
    """

    label: str
    model: Model | None
    paper: Sequence[str | None] = ()
    human: bool = False


@dataclass(frozen=True)
class Picture:
    """A picture of several models.

    Args:
        name: of its file, without ending.
        draw: draws the models that are trained; None if there is nothing to draw.
    """

    name: str
    draw: Callable[[Workspace, Sequence[Model]], Figure | None]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Args:
        title: what it shows, and where the paper has it.
        methods: that are compared.
        measures: of each method; none for a figure without numbers.
        pictures: of all models.
        trade_off: labels of the measures of one more picture, of all seeds: that of its horizontal axis, then those of
            the vertical axes, a panel for each.
        samples: generated texts that are printed under the table, as `samples.samples` returns them.
        note: how our setting differs from the paper's, and what else to know.
        check: checks, before anything is trained, that everything that is needed to measure is there.
        name: of the files of one of our own experiments. None: one of the papers, whose files are named after its entry
            and lie in the folder `tables`.
        wide: whether each method has a row, however many measures there are; otherwise more than 4 measures have rows.
        changes: whether a wide table also has a row for each further model with its changes from the first one.
        report: whether to write a report of the models, `report.html`.
    """

    title: str
    methods: Sequence[Method]
    measures: Sequence[Measure] = ()
    pictures: Sequence[Picture] = ()
    trade_off: Sequence[str] = ()
    samples: Callable[[Workspace, Model], Result] | None = None
    note: str = ""
    check: Callable[[], object] | None = None
    name: str | None = None
    wide: bool = False
    changes: bool = False
    report: bool = False

    def models(self) -> list[Model]:
        """The models to train, each once, and after the model that it starts from."""
        found: dict[str, Model] = {}
        for method in self.methods:
            chain: list[Model] = []
            model = method.model
            while model is not None:
                chain.insert(0, model)
                model = model.start
            found |= {one.name: one for one in chain if one.name not in found}
        return list(found.values())

    def trainings(self, workspaces: Sequence[Workspace]) -> list[tuple[Workspace, Model]]:
        """All models to train in the workspaces, of which there is one per seed."""
        return [
            (workspace, model)
            for workspace in workspaces
            for model in self.models()
            if model.every_seed or workspace is workspaces[0]
        ]
