"""Word alignments in Pharaoh format of a parallel training split.

Line i has `s-t` for each link between the tokens at the positions s of the source and t of the
target of sentence pair i, from 0, as in `0-0 1-2 2-1`. Source and target are X and Y in
train.X-Y.X.bin; the sentence pairs of all its parts (train, train1, …) and folders follow each
other.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import ConcatDataset
from tqdm import tqdm

from ..errors import UserError
from ..files import read_lines
from ..metrics import LinkCounts
from .binarized import folders, load_dictionary, load_sentences, split_parts

EOS = 2  # the token that fairseq appends to every sentence
LINK = re.compile(r"([0-9]+)-([0-9]+)")

Link = tuple[int, int]
Sides = tuple[Any, Any]  # fairseq's data sets of source and target, of the same length


def load_parallel(data: str | Path, languages: tuple[str, str]) -> Sides:
    """The training split of a language pair, in all its folders and parts."""
    dictionaries = [load_dictionary(data, f"dict.{language}.txt") for language in languages]
    sides: list[list[Any]] = [[], []]
    for folder in folders(data):
        for target_part in split_parts(folder, "train", languages):
            stem = target_part.name.removesuffix(languages[1])
            for side, language, dictionary in zip(sides, languages, dictionaries, strict=True):
                side.append(load_sentences(folder / f"{stem}{language}", dictionary))
            numbers = [len(side[-1]) for side in sides]
            if numbers[0] != numbers[1]:
                found = " and ".join(map("{} of {}".format, numbers, languages))
                raise UserError(
                    f"{target_part}: found sentences {found}; run fairseq-preprocess again"
                )
    return tuple(map(ConcatDataset, sides))


def sentences(side: Any) -> Iterator[list[int]]:
    """The tokens of each sentence of a side, without eos."""
    for index in range(len(side)):
        tokens = side[index].tolist()
        yield tokens[:-1] if tokens[-1:] == [EOS] else tokens


def read_links(path: str | Path, sides: Sides) -> LinkCounts:
    """Counts the links between tokens in a file of word alignments, which has a line, possibly
    empty, for each sentence pair of the split."""
    counts: Counter[Link] = Counter()
    lines = read_lines(path, "alignments in Pharaoh format")
    pairs = zip(*map(sentences, sides), strict=True)
    progress = tqdm(pairs, "links", len(sides[0]), leave=False, disable=None)
    for number, (line, pair) in enumerate(itertools.zip_longest(lines, progress), 1):
        if line is None or pair is None:
            raise UserError(
                f"{path}: found {'too few' if line is None else 'more'} lines; expected "
                f"{len(sides[0]):,}, one per sentence pair"
            )
        source, target = pair
        try:
            for s, t in parse_links(line):
                counts[source[s], target[t]] += 1
        except (ValueError, IndexError):
            raise UserError(
                f"{path}, line {number}: found {line.strip()[:80]!r}; expected links as 0-0 1-2 "
                f"between {len(source)} source and {len(target)} target tokens"
            ) from None
    if not counts:
        raise UserError(f"{path}: found no link; expected some, as 0-0 1-2")
    return LinkCounts(*torch.tensor(list(counts)).T, torch.tensor(list(counts.values())))


def parse_links(line: str) -> list[Link]:
    """The links of a line; ValueError for anything else, such as `0p0`, a possible link."""
    links = []
    for part in line.split():
        match = LINK.fullmatch(part)
        if match is None:
            raise ValueError
        links.append((int(match[1]), int(match[2])))
    return links
