"""What an experiment is made of: models to train, columns and pictures of them, and the numbers of the paper."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agg_fairseq.columns import METRICS, Metric
from agg_fairseq.errors import UserError
from agg_fairseq.names import HUMAN

if TYPE_CHECKING:  # --help and --list need the standard library alone
    from matplotlib.figure import Figure

    from agg_fairseq.result import Result

BIN = Path(sys.executable).parent
SCALES = ("paper", "small", "tiny")

Value = float | int | str | None  # a measured number, or a word; None if it is not defined


@dataclass(frozen=True)
class Corpus:
    """A corpus, and the program that prepares it."""

    name: str  # of its folder in `data/`
    program: tuple[str, ...]  # module of `scripts.data`, and its first arguments
    tokenizer: str  # as the manifest of the prepared folder names it
    parallel: bool = False  # whether it has two languages
    # Of the program, for a corpus of our own experiments, which is prepared in their output folder. None: a corpus of
    # the papers, which the scale decides on.
    options: tuple[str, ...] | None = None
    tokens_of: Corpus | None = None  # whose tokenizer and dictionary it has, and in whose folder it is
    # As the papers have it, for estimates of what a training takes:
    entries: int = 8000  # of its dictionary
    tokens: int = 0  # of its training split
    gigabytes: float = 0.0  # of its downloads and of its prepared folder


@dataclass(frozen=True)
class Model:
    """A training."""

    name: str  # of its folder
    config: str  # file under `configs/`, without ending
    corpus: Corpus
    overrides: tuple[str, ...] = ()  # of the configuration, at every scale
    size: str = ""  # of the configuration, at the scale `paper`; empty for its default
    # Further overrides by scale: what depends on the size of the corpus or of an update.
    scaled: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    scales: tuple[str, ...] = SCALES  # at which it is trained
    start: Model | None = None  # from whose best checkpoint the training starts
    convert: bool = False  # whether that is first given the factorized output layer
    averaged: int = 5  # last checkpoints of a translation model whose mean is measured; 0: the best one is
    every_seed: bool = True  # whether it is trained with each of several seeds, or with the first one alone
    corpus_only: bool = False  # whether nothing is trained, since only the corpus is looked at


@dataclass(frozen=True)
class Workspace:
    """Where and how experiments are run."""

    scale: str  # one of `SCALES`
    output: Path  # folder of everything that is made: a folder per model, corpora, tables
    data: Path | None = None  # what the user gave as `--data`
    overrides: tuple[str, ...] = ()  # of every training, from the command line
    train: bool = True  # whether to train what is missing; otherwise only what is there is measured
    dry: bool = False  # whether only to print what would be done
    gpus: int | None = None  # of each training; None: all that are visible
    seed: int | None = None  # of trainings and texts; None: as the configurations and evaluations have it
    models: str = ""  # folder in `output` of the models, one for each of several seeds; empty: `output` itself
    signatures: dict[str, None] = field(default_factory=dict)  # of the evaluations that were made, in order
    prepared: dict[Path, Any] = field(default_factory=dict)  # the prepared corpora that were looked at

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
    """Checks that fairseq can take a folder: it splits paths of data at colons, and hydra replaces `${…}`."""
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
class Method:
    """One of the methods that are compared: a row of a table."""

    label: str  # its title in the table
    model: Model | None  # ours; None for a system of others that the paper quotes
    paper: str = ""  # the paper's numbers in the order of the columns, as printed; - where there is none
    human: bool = False  # whether this is the human text; `model` is then one that was measured on it
    # Of a factorized output layer: `decoupled` or `joint` for texts, one of fairseq-generate's for translations; None:
    # as an ordinary layer.
    decoding: str | None = None
    greedy: bool = False  # whether texts always take the most probable token, also in a table of sampled texts
    cache: int | None = None  # positions of a continuous cache

    @property
    def numbers(self) -> list[str | None]:
        """The paper's numbers; None where there is none."""
        return [None if number == "-" else number for number in self.paper.split()]


@dataclass(frozen=True)
class Column:
    """A value of each method: a column of a table."""

    label: str  # its title in the table
    read: Callable[[Workspace, Method], Value]  # the value of a trained method
    measure: Metric = Metric("", "")  # what it is, for its digits and changes

    @classmethod
    def of(cls, label: str, evaluate: Callable[[Workspace, Method], Result], measure: str, key: str = "") -> Column:
        """The column of a measure in the Result of an evaluation, in the row of the model or of the human text."""

        def read(workspace: Workspace, method: Method) -> Value:
            result, row = evaluate(workspace, method), HUMAN if method.human else method.model.name
            return result.shown(row, measure, key) if row in result.rows else None

        return cls(label, read, METRICS[measure])


@dataclass(frozen=True)
class Picture:
    """A picture of several methods."""

    name: str  # of its file, without ending
    draw: Callable[[Workspace, Sequence[Method]], Figure | None]  # of trained models; None if there is nothing to draw


@dataclass(frozen=True)
class Experiment:
    """A table or a figure."""

    title: str  # what it shows, and where the paper has it
    methods: Sequence[Method]
    columns: Sequence[Column] = ()  # none for a figure without numbers
    pictures: Sequence[Picture] = ()
    # The prefixes and continuations of the texts that are printed under the table.
    samples: Callable[[Workspace, Method], list[dict[str, str]]] | None = None
    note: str = ""  # how our setting differs from the paper's, and what else to know
    # Of the files of one of our own experiments. None: one of the papers, whose files are named after its entry.
    name: str | None = None
    wide: bool = False  # whether each method has a row; otherwise more than 4 columns become rows
    changes: bool = False  # whether the row of each further model is followed by its changes from the first one
    report: bool = False  # whether to write a report of the models, `report.html`

    def models(self) -> list[Model]:
        """The models to train, each once, and after the model that it starts from."""
        models: dict[str, Model] = {}
        for method in self.methods:
            model, chain = method.model, []
            while model is not None:
                chain.insert(0, model)
                model = model.start
            for link in chain:
                models.setdefault(link.name, link)
        return list(models.values())

    def trainings(self, workspaces: Sequence[Workspace]) -> list[tuple[Workspace, Model]]:
        """All models to train in the workspaces, of which there is one per seed."""
        return [
            (workspace, model)
            for workspace in workspaces
            for model in self.models()
            if model.every_seed or workspace is workspaces[0]
        ]
