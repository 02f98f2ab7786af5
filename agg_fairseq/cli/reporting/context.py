"""What every section of a report is made from."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from matplotlib.figure import Figure

from .. import plot
from ..invoking import options
from ..measured import Measured
from .kept import Kept, key_of
from .runs import Run


class NotShown(Exception):
    """Why a section is not in this report."""


@dataclass(frozen=True)
class Context:
    """The runs, the options of the report, and what is kept of earlier ones."""

    runs: Sequence[Run]
    arguments: argparse.Namespace
    kept: Kept

    @property
    def is_language_model(self) -> bool:
        """Of the task language_modeling."""
        return self.runs[0].task == "language_modeling"

    @property
    def names(self) -> list[str]:
        """Of the runs."""
        return [run.name for run in self.runs]

    @property
    def checkpoints(self) -> list[Path]:
        """That the measures are of."""
        return [run.checkpoint for run in self.runs]

    @property
    def data(self) -> list[object]:
        """The option that names the data."""
        return ["--data", self.arguments.data]

    @property
    def data_files(self) -> list[Path]:
        """The files that a measurement of the data depends on."""
        return sorted(path for path in Path(self.arguments.data).iterdir() if path.suffix in (".bin", ".txt"))

    def options(self, *names: str) -> list[object]:
        """Options of the report that another command has too, where they are given."""
        words: list[object] = []
        for name in names:
            value = getattr(self.arguments, name)
            if value is not None:
                words += [f"--{name.replace('_', '-')}", *(value if isinstance(value, list) else [value])]
        return words

    def measured(self, name: str, command: ModuleType, words: Sequence[object], files: Sequence[object]) -> Measured:
        """What a command measures, given these words; the files are what it depends on beside the data."""
        key = key_of(words, [*map(str, files), *self.data_files])
        return self.kept.measured(name, key, lambda: command.measure(options(command.add_arguments, *words)))

    def picture(self, name: str, *words: object) -> Figure:
        """A picture of `agg-fairseq plot`."""
        module = plot.PICTURES[name]
        return module.draw(options(lambda parser: plot.add_options(parser, module), *words))
