"""Measures whether the embeddings of translation models know which words of the two languages were aligned.

AlignSim (0 to 1) of a word is the cosine of two vectors over the joined vocabulary: how often the word was aligned with
each other one, and the softmax of its embedding's cosines with all embeddings × the temperature. Shown is the mean over
the words that were ever aligned, labelled, in each frequency group and in all; their numbers are in the last row. The
row `orthogonal` is of embeddings that know nothing, all at right angles: where many words are the same in both
languages, so aligned with themselves, it is far from 0, and what a model knows is the difference.
Frequencies are those of the target side: the rare words include those that only the source has.

--alignments has a line per sentence pair of the binarised training split of DATA, as `agg-fairseq align` writes it, or
fast_align: `0-0 1-2 …`, the positions, from 0, of a source and a target token for each link. Source and target are X
and Y of the files' names, train.X-Y.X.bin; to AlignSim both are alike.

    agg-fairseq align-sim runs/mle/checkpoint_best.pt runs/agps/checkpoint_best.pt --data data-bin/wmt14.en-de \\
        --alignments wmt14.en-de.align
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from .. import __version__
from ..data.alignments import load_parallel, read_links
from ..errors import UserError
from ..metrics import FrequencyGroups, LinkCounts, align_sim, group_means, orthogonal_align_sim
from ..metrics.groups import GROUPS
from .embeddings import GROUPINGS, Embeddings, Vocabulary, add_grouping, load_all
from .measured import Measured, measure_and_show
from .naming import names_of
from .table import number

COLUMNS = (*GROUPS, "total")
ORTHOGONAL, LABELLED = "orthogonal", "labelled tokens"
"""The rows that are of no checkpoint."""


@dataclass(frozen=True)
class Similarity:
    """The numbers of one checkpoint, by group and `total`; None where no token of a group was aligned."""

    path: str
    matrix: str
    align_sim: dict[str, float | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("inputs", nargs="+", metavar="CKPT", help="checkpoints, compared side by side")
    parser.add_argument("--name", nargs="+", metavar="NAME", help="a name per checkpoint (default: its folder)")
    parser.add_argument(
        "--data", required=True, metavar="DATA", help="folder written by fairseq-preprocess, with the training split"
    )
    parser.add_argument("--alignments", required=True, metavar="FILE", help="word alignments of that split")
    add_grouping(parser, default="frequency")
    parser.add_argument(
        "--temperature", type=float, default=10.0, metavar="TAU", help="factor of the cosines (default: 10)"
    )
    parser.add_argument("--json", metavar="FILE", help="also write all numbers to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Measures every checkpoint, prints the table and writes the JSON file."""
    measure_and_show(measure, arguments, [*arguments.inputs, arguments.data, arguments.alignments])


def measure(arguments: argparse.Namespace) -> Measured:
    """Measures every checkpoint."""
    names = names_of(arguments.inputs, arguments.name)
    taken = next((name for name in names if name in (ORTHOGONAL, LABELLED)), None)
    if taken is not None:
        raise UserError(f"--name: found {taken!r}, a row of its own; give the checkpoint another name")
    if not 0 < arguments.temperature < math.inf:
        raise UserError(f"--temperature: expected a positive number, got {arguments.temperature}")
    embeddings, vocabulary = load_all(arguments.inputs, arguments.data)
    groups = vocabulary.groups(arguments.groups)
    links = read_links(arguments.alignments, load_parallel(arguments.data, _pair(arguments, vocabulary)))
    measured = [
        _similarity(one, links, groups, arguments.temperature, f"AlignSim of {name}")
        for name, one in zip(names, embeddings, strict=True)
    ]
    unrelated = orthogonal_align_sim(links, len(vocabulary.dictionary), temperature=arguments.temperature)
    orthogonal, labelled = group_means(unrelated, groups), _labelled(links, groups)
    results = [(name, one.align_sim) for name, one in zip(names, measured, strict=True)]
    return Measured(
        header=["", *(f"AlignSim {column}" for column in COLUMNS)],
        rows=[
            *([name, *_cells(means, 4)] for name, means in [*results, (ORTHOGONAL, orthogonal)]),
            [LABELLED, *_cells(labelled, 0)],
        ],
        signature=_signature(arguments, embeddings, links),
        values={
            "groups": groups.sizes(),
            "labelled": labelled,
            "orthogonal": orthogonal,
            "checkpoints": [{"name": name, **asdict(one)} for name, one in zip(names, measured, strict=True)],
        },
    )


def _pair(arguments: argparse.Namespace, vocabulary: Vocabulary) -> tuple[str, str]:
    """The languages in the order of the training split's files, which a model from Y to X may have been trained on."""
    if not vocabulary.joined or vocabulary.languages is None:
        found = "separate dictionaries" if vocabulary.languages else "a language model"
        raise UserError(
            f"{arguments.inputs[0]}: found {found}; AlignSim expects a translation model over a dictionary that "
            "fairseq-preprocess --joined-dictionary made"
        )
    source, target = vocabulary.languages
    named = (Path(arguments.data) / f"train.{source}-{target}.{target}.bin").is_file()
    return (source, target) if named else (target, source)


def _similarity(
    embeddings: Embeddings, links: LinkCounts, groups: FrequencyGroups, temperature: float, title: str
) -> Similarity:
    progress = partial(tqdm, desc=title, unit="chunk", disable=None, leave=False)
    values = align_sim(embeddings.weight, links, temperature=temperature, progress=progress)
    return Similarity(embeddings.path, embeddings.matrix, group_means(values, groups))


def _labelled(links: LinkCounts, groups: FrequencyGroups) -> dict[str, int]:
    """How many tokens of each group, and of all, were ever linked."""
    of_token = groups.of_token[links.tokens()]
    counts = {name: int(of_token.eq(index).sum()) for index, name in enumerate(groups.names)}
    return counts | {"total": len(of_token)}


def _cells(by_group: Mapping[str, float | None], digits: int) -> list[str | None]:
    return [number(by_group[column], digits) for column in COLUMNS]


def _signature(arguments: argparse.Namespace, embeddings: list[Embeddings], links: LinkCounts) -> str:
    """Every choice that moves a number."""
    return "|".join(
        [
            f"matrix:{','.join(dict.fromkeys(one.matrix for one in embeddings))}",
            f"groups:{GROUPINGS[arguments.groups]},target-side",
            f"temperature:{arguments.temperature:g}",
            f"links:{int(links.count.sum())}",
            f"pairs:{len(links.count)}",
            "labels:symmetric",
            f"version:{__version__}",
        ]
    )
