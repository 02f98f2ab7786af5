"""Word alignments in Pharaoh format of a parallel training split.

Line i has `s-t` for each link between the tokens at the positions s of the source and t of the
target of sentence pair i, from 0, as in `0-0 1-2 2-1`. Source and target are X and Y in
train.X-Y.X.bin; the sentence pairs of all its parts (train, train1, …) and folders follow each
other.
"""

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
BLOCK_LINES, MOST_DIGITS = 2**15, 9
"""Lines that are read at a time, and digits of a position."""


def load_parallel(data: str | Path, languages: tuple[str, str]) -> list[Sentences]:
    """Source and target of the training split of a language pair, in all its folders and parts."""
    sides = []
    for language in languages:
        parts = []
        for folder in folders(data):
            for target_part in split_parts(folder, "train", languages):
                stem = target_part.name.removesuffix(languages[1])
                parts.append(folder / f"{stem}{language}")
        sides.append(load_sentences(parts, load_dictionary(data, f"dict.{language}.txt")))
    numbers = [side.numbers for side in sides]
    if numbers[0] != numbers[1]:
        found = " and ".join(map("{} of {}".format, numbers, languages))
        raise UserError(f"{data}: found sentences {found}; run fairseq-preprocess again")
    return sides


def sentences(side: Sentences) -> Iterator[list[int]]:
    """The tokens of each sentence of a side, without eos."""
    for begin, end in pairwise([0, *side.ends.tolist()]):
        tokens = side.tokens[begin:end].tolist()
        yield tokens[:-1] if tokens[-1:] == [EOS] else tokens


def read_links(path: str | Path, sides: Sequence[Sentences]) -> LinkCounts:
    """Counts the links between tokens in a file of word alignments, which has a line, possibly
    empty, for each sentence pair of the split."""
    lines = read_lines(path, "alignments in Pharaoh format")
    number, size = len(sides[0].ends), 1 + max(int(side.tokens.max(initial=0)) for side in sides)
    begins = np.stack([np.append(0, side.ends[:-1]) for side in sides])  # 2 x number of pairs
    lengths = np.stack([side.ends for side in sides]) - begins
    for side, length in zip(sides, lengths, strict=True):
        length -= (length > 0) & (np.append(side.tokens, 0)[side.ends - 1] == EOS)
    keys, counts = [], []
    for start in tqdm(range(0, number + 1, BLOCK_LINES), "links", leave=False, disable=None):
        block = [*islice(lines, BLOCK_LINES)]
        expected = min(BLOCK_LINES, number - start)
        if len(block) != expected:
            found = "too few" if len(block) < expected else "more"
            raise UserError(
                f"{path}: found {found} lines; expected {number:,}, one per sentence pair"
            )
        here = slice(start, start + len(block))
        links = parse_links(block, lengths[:, here])
        if links is None:
            for pair, line in enumerate(block, start):
                if parse_links([line], lengths[:, pair : pair + 1]) is None:
                    source, target = lengths[:, pair]
                    raise UserError(
                        f"{path}, line {pair + 1}: found {line.strip()[:80]!r}; expected links as "
                        f"0-0 1-2 between {source} source and {target} target tokens"
                    )
        number_of_links, positions = links
        places = begins[:, here].repeat(number_of_links, axis=1) + positions  # 2 x L
        source, target = (side.tokens[at] for side, at in zip(sides, places, strict=True))
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


def parse_links(lines: Sequence[str], lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The number of links of each of some lines (n,), and their positions in source and target
    (2, L). None if there is anything else in them, such as `0p0`, a possible link, or a position
    beyond the lengths (2, n) of the sentences."""
    text = np.frombuffer(f" {''.join(lines)} ".encode(), dtype=np.uint8)
    is_digit, is_dash = (text >= ord("0")) & (text <= ord("9")), text == ord("-")
    is_space = (text == ord(" ")) | (text >= ord("\t")) & (text <= ord("\r"))
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
    line_begins = np.append(0, np.flatnonzero(text == ord("\n")) + 1)[: len(lines)]
    number_of_links = np.add.reduceat(is_dash, line_begins, dtype=np.int64)
    positions = numbers.reshape(-1, 2).T
    is_inside = positions < lengths.repeat(number_of_links, axis=1)
    return (number_of_links, positions) if is_inside.all() else None
