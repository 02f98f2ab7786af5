"""Measures generated texts next to each other, and the human texts that they were to continue as.

Each FILE has a JSON object per line with the strings `prefix`, `continuation` and `reference`, tokens separated by
spaces, as `agg-fairseq generate-lm` writes them; all files have the same references in the same order. The measures
are those of the F²-Softmax paper, of the continuations, and of the references as `human`. Likeness to the references:
KLD (in nats) and MS-Jaccard (MSJ). Likeness to each other: Self-BLEU (SB). Variety: Distinct (Dist) within a text,
Rep, the share of texts that end in a repeated phrase, and Uniq, the number of distinct tokens. With --data, also the
share of frequent, medium, rare and very rare tokens: those that make up the top 40%, next 30%, next 20% and last 10%
of the training split. All but KLD and Uniq are × 100, but not in --json. A measure that is not defined, such as the
Self-BLEU of a single text, is left empty.

    agg-fairseq text-metrics mle.jsonl agg.jsonl --data data-bin/wikitext-2
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from tqdm import tqdm

from .. import __version__
from ..data.binarized import count_tokens, load_dictionary
from ..errors import UserError, first_line
from ..files import open_file
from ..metrics import (
    FrequencyGroups,
    distinct,
    frequency_mass_groups,
    group_shares,
    kl_divergence,
    ms_jaccard,
    repetition,
    self_bleu,
    unique_tokens,
)
from ..metrics.diversity import SHORTEST_PHRASE
from ..metrics.likeness import ABSENT
from ..metrics.mass_groups import MASS_GROUPS, MASS_PERCENT
from .measured import Measured, measure_and_show
from .naming import HUMAN, names_of, stem
from .table import number

FIELDS = ("prefix", "continuation", "reference")
MAX_ORDER = 3
ORDERS = range(1, MAX_ORDER + 1)

Texts = list[list[str]]
Shares = Callable[[Texts], dict[str, float] | None]


@dataclass(frozen=True)
class TextMeasures:
    """The numbers of one row; None where a measure is not defined. Lists are by order 1, 2, 3."""

    tokens: int
    kld: float | None
    ms_jaccard: list[float] | None
    self_bleu: list[float] | None
    distinct: list[float]
    repetition: float
    uniq: int
    shares: dict[str, float] | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those that eval-lm has too bear the same names."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="generated texts, compared side by side")
    parser.add_argument("--name", nargs="+", metavar="NAME", help="a name per file (default: its own, without ending)")
    parser.add_argument(
        "--data", metavar="DATA", help="folder written by fairseq-preprocess, with the training split, for the shares"
    )
    parser.add_argument("--json", metavar="FILE", help="also write all numbers to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Measures every file and the references, prints the table and writes the JSON file."""
    measure_and_show(measure, arguments, [*arguments.files, *filter(None, [arguments.data])])


def measure(arguments: argparse.Namespace) -> Measured:
    """Measures every file and the references."""
    names = names_of(arguments.files, arguments.name, stem)
    if HUMAN in names:
        raise UserError(f"--name: found {HUMAN!r}, the row of the references; give the file another name")
    continuations, references = _read_all(arguments.files)
    groups, shares = _shares(arguments.data)
    rows = []
    for texts in tqdm([*continuations, references], desc="measuring", unit="file", disable=None, leave=False):
        rows.append(_measure(texts, None if texts is references else references, shares))
    *measured, human = rows
    of_file = zip(names, arguments.files, measured, strict=True)
    results = [{"name": name, "path": path, **asdict(measures)} for name, path, measures in of_file]
    with_shares = groups is not None
    return Measured(
        header=_header(with_shares=with_shares),
        rows=[[n, *_cells(row, with_shares=with_shares)] for n, row in zip([*names, HUMAN], rows, strict=True)],
        signature=_signature(len(references), human, groups),
        values={"groups": groups and groups.sizes(), "human": asdict(human), "files": results},
    )


def _read_all(paths: Sequence[str]) -> tuple[list[Texts], Texts]:
    """The continuations of each file, and the references of all."""
    records = [_read(path) for path in paths]
    references = [[record["reference"].split() for record in of_file] for of_file in records]
    for path, others in zip(paths, references, strict=True):
        if others != references[0]:
            raise UserError(f"{path}: {_difference(others, references[0])} in {paths[0]}; generate all from one split")
    return [[record["continuation"].split() for record in of_file] for of_file in records], references[0]


def _read(path: str) -> list[dict[str, str]]:
    try:
        with open_file(path, encoding="utf-8", newline="\n") as file:
            records = [_record(line, f"{path}, line {count}") for count, line in enumerate(file, 1)]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: unreadable ({first_line(error)}); expected texts written by agg-fairseq generate-lm"
        ) from error
    if not records:
        raise UserError(f"{path}: found no text; expected a JSON object per line; run agg-fairseq generate-lm again")
    return records


def _record(line: str, place: str) -> dict[str, str]:
    """A line's object, with the fields as strings."""
    expected = f"expected an object with the strings {', '.join(FIELDS)}, as agg-fairseq generate-lm writes it"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: found no JSON ({first_line(error)}); {expected}") from error
    if not isinstance(record, dict):
        raise UserError(f"{place}: found a JSON {type(record).__name__}; {expected}")
    for field in FIELDS:
        if not isinstance(record.get(field), str):
            found = f"{field!r} of type {type(record[field]).__name__}" if field in record else f"no field {field!r}"
            raise UserError(f"{place}: found {found}; {expected}")
    return record


def _difference(found: Texts, expected: Texts) -> str:
    """What sets the references of two files apart."""
    if len(found) != len(expected):
        return f"found {len(found)} texts; expected the same references as the {len(expected)}"
    line = next(index for index, (one, other) in enumerate(zip(found, expected, strict=True), 1) if one != other)
    return f"found another reference on line {line}; expected that"


def _shares(data: str | None) -> tuple[FrequencyGroups | None, Shares]:
    """The groups of the training split, and what measures their shares; a token it lacks is very rare."""
    if data is None:
        return None, lambda texts: None
    dictionary = load_dictionary(data)
    unseen = torch.zeros(1, dtype=torch.int64)  # one more entry, for all tokens that the dictionary lacks
    groups = frequency_mass_groups(torch.cat([count_tokens(data, dictionary), unseen]))

    def shares(texts: Texts) -> dict[str, float] | None:
        indices = [dictionary.indices.get(token, len(dictionary)) for text in texts for token in text]
        return group_shares(torch.tensor(indices), groups) if indices else None

    return groups, shares


def _measure(texts: Texts, references: Texts | None, shares: Shares) -> TextMeasures:
    """One row; without references that of the human texts."""
    has_tokens = [any(side) for side in (texts, references or [])]
    return TextMeasures(
        tokens=sum(map(len, texts)),
        kld=kl_divergence(texts, references) if all(has_tokens) else None,
        ms_jaccard=ms_jaccard(texts, references, MAX_ORDER) if references and any(has_tokens) else None,
        self_bleu=self_bleu(texts, MAX_ORDER) if len(texts) > 1 else None,
        distinct=distinct(texts, MAX_ORDER),
        repetition=repetition(texts),
        uniq=unique_tokens(texts),
        shares=shares(texts),
    )


def _header(*, with_shares: bool) -> list[str]:
    header = ["", "KLD", *(f"{measure}-{n}" for measure in ("MSJ", "SB", "Dist") for n in ORDERS), "Rep (%)", "Uniq"]
    return [*header, *(f"{group} (%)" for group in MASS_GROUPS)] if with_shares else header


def _cells(row: TextMeasures, *, with_shares: bool) -> list[str | None]:
    by_order = [
        score for scores in (row.ms_jaccard, row.self_bleu, row.distinct) for score in scores or [None] * MAX_ORDER
    ]
    cells = [number(row.kld, 2), *map(_percent, by_order), number(100 * row.repetition, 2), number(row.uniq, 0)]
    if with_shares:
        cells += [_percent((row.shares or {}).get(group)) for group in MASS_GROUPS]
    return cells


def _percent(share: float | None) -> str | None:
    return None if share is None else number(100 * share, 1)


def _signature(texts: int, human: TextMeasures, groups: FrequencyGroups | None) -> str:
    """Every choice that moves a number."""
    parts = [
        f"texts:{texts}",
        f"tokens:{human.tokens}",
        "self-bleu:method1,closest",
        "ms-jaccard:counts-per-text,padded",
        f"kld:{ABSENT:g},nats",
        "distinct:per-token",
        f"rep:{SHORTEST_PHRASE}-or-more-twice",
        f"version:{__version__}",
    ]
    if groups is not None:
        parts.insert(-1, f"groups:{'/'.join(f'{percent}%' for percent in MASS_PERCENT)}-of-mass")
    return "|".join(parts)
