"""What every section of a report is made from."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .. import plot
from ..invoking import options
from ..measured import Measured
from ..tokenisers import HELP, tokeniser_files
from .kept import Kept, key_of
from .runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    def checkpoints(self) -> list[str]:
        """That the measures are of."""
        return [str(run.checkpoint) for run in self.runs]

    def given(self, *names: str) -> dict[str, Any]:
        """Options of the report that another command has too, where they are given."""
        values = {name: getattr(self.arguments, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def tokeniser(self) -> dict[str, Any]:
        """How words are split."""
        return self.given("bpe", *HELP)

    def measured(self, kept_as: str, command: ModuleType, files: Sequence[str] = (), /, **values: Any) -> Measured:
        """What a command measures with these options.

        Args:
            kept_as: the name under which it is kept.
            command: the module of the sub-command.
            files: that it depends on, beside the checkpoints, the data and the tokeniser.
            values: its options.
        """
        key = self.key(values, [*self.checkpoints, *files, *tokeniser_files(self.arguments)])
        return self.kept.measured(kept_as, key, lambda: command.measure(options(command.add_arguments, **values)))

    def key(self, values: dict[str, Any], files: Sequence[str]) -> list[Any]:
        """What a measurement depends on: the options, and the files, those of the data among them."""
        data = sorted(path for path in Path(self.arguments.data).iterdir() if path.suffix in (".bin", ".txt"))
        return key_of(values, [*files, *data])

    def picture(self, picture: str, /, **values: Any) -> Figure:
        """A picture of `agg-fairseq plot`, with these options."""
        defaults = {"groups": "types", "valid_split": "valid", "name": None}
        return plot.draw(argparse.Namespace(**{"picture": picture, **defaults, **values}))
