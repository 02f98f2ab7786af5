"""Word alignments in Pharaoh format of a parallel training split.

Line i has `s-t` for each link between the tokens at the positions s of the source and t of the
target of sentence pair i, from 0, as in `0-0 1-2 2-1`. Source and target are X and Y in
train.X-Y.X.bin; the sentence pairs of all its parts (train, train1, …) and folders follow each
other.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from ..errors import UserError
from ..files import read_lines
from ..metrics import LinkCounts
from .binarized import Sentences, folders, load_dictionary, load_sentences, split_parts

EOS = 2  # the token that fairseq appends to every sentence
LINK = re.compile(r"([0-9]+)-([0-9]+)")
BLOCK_LINES, MOST_DIGITS = 2**15, 9
"""Lines that are read at a time, and digits of a position that has a value here."""

Link = tuple[int, int]
Sides = tuple[Sentences, Sentences]  # source and target, of the same number


def load_parallel(data: str | Path, languages: tuple[str, str]) -> Sides:
    """The training split of a language pair, in all its folders and parts."""
    dictionaries = [load_dictionary(data, f"dict.{language}.txt") for language in languages]
    parts: list[list[Sentences]] = [[], []]
    for folder in folders(data):
        for target_part in split_parts(folder, "train", languages):
            stem = target_part.name.removesuffix(languages[1])
            for side, language, dictionary in zip(parts, languages, dictionaries, strict=True):
                side.append(load_sentences(folder / f"{stem}{language}", dictionary))
            numbers = [len(side[-1].ends) for side in parts]
            if numbers[0] != numbers[1]:
                found = " and ".join(map("{} of {}".format, numbers, languages))
                raise UserError(
                    f"{target_part}: found sentences {found}; run fairseq-preprocess again"
                )
    source, target = map(joined, parts)
    return source, target


def joined(parts: Sequence[Sentences]) -> Sentences:
    """The sentences of several parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    lengths = [np.diff(part.ends, prepend=0) for part in parts]
    tokens = [part.tokens for part in parts]
    return Sentences(np.concatenate(tokens), np.cumsum(np.concatenate(lengths)))


def sentences(side: Sentences) -> Iterator[list[int]]:
    """The tokens of each sentence of a side, without eos."""
    for begin, end in pairwise([0, *side.ends.tolist()]):
        tokens = side.tokens[begin:end].tolist()
        yield tokens[:-1] if tokens[-1:] == [EOS] else tokens


def read_links(path: str | Path, sides: Sides) -> LinkCounts:
    """Counts the links between tokens in a file of word alignments, which has a line, possibly
    empty, for each sentence pair of the split."""
    lines = read_lines(path, "alignments in Pharaoh format")
    number, size = len(sides[0].ends), 1 + max(int(side.tokens.max(initial=0)) for side in sides)
    begins = [np.append(0, side.ends[:-1]) for side in sides]
    lengths = []  # of the sentences of each side, without eos
    for (tokens, ends), begin in zip(sides, begins, strict=True):
        has_eos = (ends > begin) & (np.append(tokens, 0)[ends - 1] == EOS)
        lengths.append(ends - begin - has_eos)
    none = np.empty(0, dtype=np.int64)
    keys, counts = [none], [none]
    for start in tqdm(range(0, number + 1, BLOCK_LINES), "links", leave=False, disable=None):
        block = [*islice(lines, BLOCK_LINES)]
        expected = min(BLOCK_LINES, number - start)
        if len(block) != expected:
            found = "too few" if len(block) < expected else "more"
            raise UserError(
                f"{path}: found {found} lines; expected {number:,}, one per sentence pair"
            )
        here = slice(start, start + len(block))
        links, line_lengths = parse_lines(block), [length[here] for length in lengths]
        if links is None or any(
            (at >= np.repeat(n, links[0])).any()
            for at, n in zip(links[1], line_lengths, strict=True)
        ):
            links = links_by_line(path, block, start, *line_lengths)
        number_of_links, positions = links
        source, target = [
            side.tokens[np.repeat(begin[here], number_of_links) + position]
            for side, begin, position in zip(sides, begins, positions, strict=True)
        ]
        block_keys, times = np.unique(source.astype(np.int64) * size + target, return_counts=True)
        keys.append(block_keys)
        counts.append(times)
    all_keys = np.concatenate(keys)
    if not len(all_keys):
        raise UserError(f"{path}: found no link; expected some, as 0-0 1-2")
    order = all_keys.argsort(kind="stable")  # merges the blocks
    all_keys = all_keys[order]
    starts = np.flatnonzero(np.diff(all_keys, prepend=-1))
    found, total = all_keys[starts], np.add.reduceat(np.concatenate(counts)[order], starts)
    return LinkCounts(*map(torch.from_numpy, (found // size, found % size, total)))


def parse_lines(lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray] | None:
    """The number of links of each of some lines (n,), and their positions in source and target
    (2, L). None if there is anything else in them, such as `0p0`, a possible link."""
    text = np.frombuffer(f" {''.join(lines)} ".encode(), dtype=np.uint8)
    is_digit, is_dash = (text >= ord("0")) & (text <= ord("9")), text == ord("-")
    is_end = text == ord("\n")
    is_space = is_end | (text == ord(" ")) | (text == ord("\r"))
    edges = np.flatnonzero(is_digit[1:] != is_digit[:-1]) + 1
    begins, ends = edges[::2], edges[1::2]  # of numbers
    is_paired = (
        len(begins) == 2 * np.count_nonzero(is_dash)
        and is_dash[ends[::2]].all()
        and (is_digit[1:] >= is_dash[:-1]).all()
        and (is_digit | is_dash | is_space).all()
    )
    digits = ends - begins
    if not is_paired or digits.max(initial=0) > MOST_DIGITS:
        return None
    numbers = (text[begins] - ord("0")).astype(np.int64)
    for place in range(1, digits.max(initial=0)):
        longer = np.flatnonzero(digits > place)
        numbers[longer] = 10 * numbers[longer] + text[begins[longer] + place] - ord("0")
    line_begins = np.append(0, np.flatnonzero(is_end) + 1)[: len(lines)]
    number_of_links = np.add.reduceat(is_dash, line_begins, dtype=np.int64)
    return number_of_links, numbers.reshape(-1, 2).T


def links_by_line(
    path: str | Path, lines: Sequence[str], start: int, source: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`parse_lines` lines, of which the first follows `start` others, whose sentences have so many
    tokens; UserError for what is no link between these."""
    number_of_links, positions = [], []
    for number, line in enumerate(lines):
        lengths = int(source[number]), int(target[number])
        try:
            line_links = parse_links(line)
            if any(s >= lengths[0] or t >= lengths[1] for s, t in line_links):
                raise ValueError
        except ValueError:
            raise UserError(
                f"{path}, line {start + number + 1}: found {line.strip()[:80]!r}; expected links "
                f"as 0-0 1-2 between {lengths[0]} source and {lengths[1]} target tokens"
            ) from None
        number_of_links.append(len(line_links))
        positions += line_links
    return np.array(number_of_links, np.int64), np.array(positions, np.int64).reshape(-1, 2).T


def parse_links(line: str) -> list[Link]:
    """The links of a line; ValueError for anything else, such as `0p0`, a possible link."""
    links = []
    for part in line.split():
        match = LINK.fullmatch(part)
        if match is None:
            raise ValueError
        links.append((int(match[1]), int(match[2])))
    return links
