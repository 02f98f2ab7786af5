"""What a table or figure of a paper is made of: models to train, measures of them, and the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bench import Bench

SCALES = ("paper", "small", "tiny")

Value = float | str | None
"""A measured number, or words; None where it is not defined."""


@dataclass(frozen=True)
class Corpus:
    """A prepared folder, and what makes it.

    Args:
        name: of the folder in `data/`.
        prepare: the script that makes it, under `scripts/`.
        tokenizer: of its text, as the manifest says it.
        parallel: of two languages?
    """

    name: str
    prepare: str
    tokenizer: str
    parallel: bool = False


@dataclass(frozen=True)
class Model:
    """A training.

    Args:
        name: of its folder; two of the same name differ in `decoding` alone.
        config: under `configs/`.
        corpus: that it is trained on.
        overrides: of the configuration, at every scale.
        scaled: further ones, by scale: what depends on the size of the corpus or of an update.
        scales: those at which it is trained.
        start: the model from whose best checkpoint it goes on.
        convert: is that first given the factorised output layer?
        decoding: of texts by a factorised output layer: `decoupled`, or `joint`.
        averaged: how many of its last checkpoints are averaged, of a translation model.
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
    averaged: int = 5


def model_of(config: str, corpus: Corpus, *overrides: str, suffix: str = "", **options: Any) -> Model:
    """A model named after the file of its configuration, and `suffix`, which sets apart several of one file."""
    return Model(f"{Path(config).name}{suffix}", config, corpus, overrides, **options)


@dataclass(frozen=True)
class Measure:
    """A number of each model.

    Args:
        label: as the paper's table has it.
        get: the number of a model.
        digits: of our number behind the point.
        human: the same number of the human text, where there is one.
    """

    label: str
    get: Callable[[Bench, Model], Value]
    digits: int = 2
    human: Callable[[Bench, Model], Value] | None = None


@dataclass(frozen=True)
class Method:
    """What the paper compares.

    Args:
        label: as the paper has it.
        model: ours; None where the paper quotes somebody else's method, which is not part of this package.
        paper: its numbers, as printed, in the order of the measures; None where there is none.
        human: is this the text that people wrote? The model is then one that was measured on it.
    """

    label: str
    model: Model | None
    paper: Sequence[str | None] = ()
    human: bool = False


@dataclass(frozen=True)
class Picture:
    """A picture of several models.

    Args:
        name: of the file, without ending.
        draw: the arguments of `agg-fairseq plot`, without --output.
    """

    name: str
    draw: Callable[[Bench, Sequence[Model]], Sequence[str | Path]]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Args:
        title: what it shows, and where it stands.
        methods: compared.
        measures: of each; none for a figure without numbers.
        pictures: drawn of all models.
        note: in what way ours is not the paper's setting, and other things to know.
        check: sees, before anything is trained, that all that measuring needs is there.
    """

    title: str
    methods: Sequence[Method]
    measures: Sequence[Measure] = ()
    pictures: Sequence[Picture] = ()
    note: str = ""
    check: Callable[[], object] | None = None

    def models(self) -> list[Model]:
        """What has to be trained, each once, what others start from first."""
        found: dict[str, Model] = {}
        for method in self.methods:
            chain: list[Model] = []
            model = method.model
            while model is not None:
                chain.insert(0, model)
                model = model.start
            found |= {one.name: one for one in chain if one.name not in found}
        return list(found.values())
