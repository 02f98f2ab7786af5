"""Word alignments in Pharaoh format of a parallel training split that `fairseq-preprocess` wrote.

Line i is of sentence pair i: `s-t` for each link between the source token at position s and the target token at
position t, counted from 0, as in `0-0 1-2 2-1`. Source and target are those in the names of the files, X and Y in
train.X-Y.X.bin.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from ..errors import UserError, first_line
from ..files import open_file
from ..metrics import LinkCounts
from .binarized import count_tokens, load_dictionary

BLOCK_LINES = 2**15
MERGED_AT = 2**22
"""Pairs that wait to be merged into those counted before, unless there are more of those."""

LINE = re.compile(rb"(?:[0-9]{1,9}-[0-9]{1,9}(?:\s+|$))*")
POSSIBLE = re.compile(r"[0-9]+[p?][0-9]+")
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))

Link = tuple[int, int]


@dataclass(frozen=True)
class ParallelSplit:
    """The sentence pairs of a binarised training split.

    Args:
        path: of its files, without the language and what follows.
        languages: source and target, in the order of the files' names.
        source: fairseq's data set of the source side.
        target: that of the target side, as long.
        vocabularies: the sizes of the two sides' dictionaries.
        eos: the token that fairseq appends to every sentence; not part of it here.
    """

    path: Path
    languages: tuple[str, str]
    source: Any
    target: Any
    vocabularies: tuple[int, int]
    eos: int

    def __len__(self) -> int:
        return len(self.source)

    def sentences(self, side: Any, indices: Iterable[int]) -> Iterator[np.ndarray]:
        """The tokens of some sentences of a side, `source` or `target`, each (T,) int64."""
        for index in indices:
            tokens = side[index].numpy()
            yield tokens[:-1] if len(tokens) and tokens[-1] == self.eos else tokens


def training_pair(data: str | Path, source: str | None = None, target: str | None = None) -> tuple[str, str]:
    """The languages X and Y of the files train.X-Y.X.bin in a folder.

    Args:
        data: folder written by `fairseq-preprocess`.
        source: X, where there may be several.
        target: Y, likewise.

    Raises:
        UserError: there is none, or more than one.
    """
    names = (re.fullmatch(r"train\.([^.]+)-([^.]+)\.\1\.bin", path.name) for path in sorted(Path(data).glob("*.bin")))
    found = [(match[1], match[2]) for match in names if match]
    asked = [pair for pair in found if source in (None, pair[0]) and target in (None, pair[1])]
    if len(asked) == 1:
        return asked[0]
    expected = f"train.{source or 'X'}-{target or 'Y'}.{source or 'X'}.bin"
    if not asked:
        others = f" but {', '.join(map('-'.join, found))}" if found else ""
        raise UserError(f"{data}: found no {expected}{others}; expected a parallel split of fairseq-preprocess")
    raise UserError(
        f"{data}: found the language pairs {', '.join(map('-'.join, asked))}; choose by --source-lang and --target-lang"
    )


def load_parallel(data: str | Path, languages: tuple[str, str]) -> ParallelSplit:
    """The training split of a language pair.

    Args:
        data: folder written by `fairseq-preprocess`.
        languages: as in the names of the files.

    Raises:
        UserError: as `load_dictionary` and `count_tokens`; or the sides are not of the same length.
    """
    path = Path(data) / f"train.{'-'.join(languages)}"
    dictionaries = [load_dictionary(data, f"dict.{language}.txt") for language in languages]
    sides = [_side(data, f"{path.name}.{one}", of) for one, of in zip(languages, dictionaries, strict=True)]
    if len(sides[0]) != len(sides[1]):
        lengths = " and ".join(f"{len(side)} of {one}" for side, one in zip(sides, languages, strict=True))
        raise UserError(f"{path}: found {lengths}; expected as many sentences on both sides; run fairseq-preprocess")
    return ParallelSplit(path, languages, *sides, tuple(map(len, dictionaries)), dictionaries[0].eos())


def _side(data: str | Path, split: str, dictionary: Any) -> Any:
    from fairseq.data import data_utils

    count_tokens(data, dictionary, split)  # which sees that all of them can be read
    return data_utils.load_indexed_dataset(str(Path(data) / split), dictionary)


def read_links(path: str | Path, split: ParallelSplit) -> LinkCounts:
    """How often each pair of tokens is linked by a file of word alignments; tokens as in the dictionaries.

    Memory is that of the distinct pairs and of a block of lines.

    Args:
        path: of the file in Pharaoh format, a line per sentence pair; a line may be empty.
        split: that it aligns.

    Returns:
        LinkCounts: each pair once.

    Raises:
        UserError: the file is not readable, has another number of lines than `split` sentence pairs, is not in
            Pharaoh format, links a position that its sentence does not have, or has no link at all.
    """
    _check_lines(path, split)
    counted = _CodeCounts()
    progress = tqdm(total=len(split), desc="links", unit="pair", disable=None, leave=False)
    with open_file(path, "rb") as file, progress as bar:
        for first in range(0, len(split), BLOCK_LINES):
            lines = list(itertools.islice(file, BLOCK_LINES))
            counted.add(_codes(lines, split, first, path))
            bar.update(len(lines))
    codes, counts = counted.total()
    if not len(codes):
        raise UserError(f"{path}: found no link; expected some, as 0-0 1-2")
    source, target = np.divmod(codes, split.vocabularies[1])
    return LinkCounts(*map(torch.from_numpy, (source, target, counts)))


def _check_lines(path: str | Path, split: ParallelSplit) -> None:
    try:
        with open_file(path, "rb") as file:
            lines = sum(1 for _ in file)
    except OSError as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); expected alignments in Pharaoh format") from error
    if lines != len(split):
        raise UserError(
            f"{path}: found {lines} lines; expected {len(split)}, one per sentence pair of {split.path}; align the "
            "split as fairseq-preprocess wrote it"
        )


def _codes(lines: list[bytes], split: ParallelSplit, first: int, path: str | Path) -> np.ndarray:
    """The linked pairs of some lines, each as source token · size of the target's dictionary + target token."""
    pair, positions = _positions(lines, first, path)
    indices = range(first, first + len(lines))
    sides = [list(split.sentences(side, indices)) for side in (split.source, split.target)]
    lengths = np.array([[len(sentence) for sentence in side] for side in sides])  # 2 x lines
    beyond = (positions >= lengths[:, pair]).any(0).nonzero()[0]
    if len(beyond):
        line, (s, t) = pair[beyond[0]], positions[:, beyond[0]]
        source, target = lengths[:, line]
        raise UserError(
            f"{path}, line {first + line + 1}: found the link {s}-{t} in a pair of {source} source and {target} target "
            f"tokens; expected positions from 0, without the eos, in {split.path} as fairseq-preprocess wrote it"
        )
    starts = lengths.cumsum(1) - lengths  # of the sentences among the block's tokens
    linked = [np.concatenate(side)[starts[i, pair] + positions[i]] for i, side in enumerate(sides)]
    return linked[0] * split.vocabularies[1] + linked[1]


def _positions(lines: list[bytes], first: int, path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """The line, and (2, L) the positions, of every link."""
    for number, line in enumerate(lines, first + 1):
        if not LINE.fullmatch(line.strip()):
            raise UserError(_malformed(line, f"{path}, line {number}"))
    numbers = map(int, b" ".join(lines).replace(b"-", b" ").split())
    positions = np.fromiter(numbers, dtype=np.int64).reshape(-1, 2).T
    return np.repeat(np.arange(len(lines)), [line.count(b"-") for line in lines]), positions


def _malformed(line: bytes, place: str) -> str:
    word = next(word for word in line.split() if not LINE.fullmatch(word)).decode(errors="replace")[:40]
    if POSSIBLE.fullmatch(word):
        return f"{place}: found the possible link {word}; expected sure links only, as {re.sub('[p?]', '-', word)}"
    return f"{place}: found {word!r}; expected links in Pharaoh format, source-target, as 0-0 1-2"


class _CodeCounts:
    """Counts of int64 codes, added in blocks: those merged, and those of the blocks since."""

    def __init__(self) -> None:
        self.merged = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        self.waiting: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, codes: np.ndarray) -> None:
        self.waiting.append(np.unique(codes, return_counts=True))
        if sum(len(codes) for codes, _ in self.waiting) >= max(MERGED_AT, len(self.merged[0])):
            self.total()

    def total(self) -> tuple[np.ndarray, np.ndarray]:
        """The distinct codes, ascending, and their counts."""
        codes, counts = (np.concatenate(parts) for parts in zip(self.merged, *self.waiting, strict=True))
        self.waiting = []
        order = codes.argsort(kind="stable")
        codes, counts = codes[order], counts[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        self.merged = (codes[starts], np.add.reduceat(counts, starts) if len(starts) else counts)
        return self.merged


def parse_links(line: str) -> set[Link]:
    """The links of a line in Pharaoh format."""
    return {(int(s), int(t)) for s, t in (link.split("-") for link in line.split())}


def format_links(links: Iterable[Link]) -> str:
    """A line in Pharaoh format, in order of the source positions."""
    return " ".join(f"{s}-{t}" for s, t in sorted(links))


def symmetrize(forward: set[Link], reverse: set[Link]) -> set[Link]:
    """The links of both directions, by grow-diag-final-and.

    From the links that both directions have, it grows: as long as there is one, a link of either direction is added
    that is next to one already there, diagonally too, and has a word without a link. At the end come the links of
    `forward`, then of `reverse`, both of whose words still have none. Links are gone through by source, then target
    position, and a link's neighbours in the order of `NEIGHBOURS`.

    Args:
        forward: links (s, t), of an aligner from source to target.
        reverse: links (s, t) too, of one from target to source.

    Reference: Koehn et al. (2003), Sec. 3.1; diag and final-and as in Koehn et al. (2005).
    """
    links = forward & reverse
    sources, targets = {s for s, _ in links}, {t for _, t in links}
    union = forward | reverse

    def add(link: Link) -> None:
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])

    ordered = sorted(union)
    before = -1
    while before < len(links) < len(union):
        before = len(links)
        for s, t in ordered:
            if (s, t) in links:
                for down, right in NEIGHBOURS:
                    near = (s + down, t + right)
                    if near in union and (near[0] not in sources or near[1] not in targets):
                        add(near)
    for direction in (forward, reverse):
        for link in sorted(direction - links):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return links


def symmetrized_lines(forward: Iterable[str], reverse: Iterable[str]) -> Iterator[str]:
    """The lines of two directions in Pharaoh format as those of `symmetrize`."""
    for lines in zip(forward, reverse, strict=True):
        yield format_links(symmetrize(*map(parse_links, lines)))
