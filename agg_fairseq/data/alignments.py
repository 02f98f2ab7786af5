"""Word alignments in Pharaoh format of a parallel training split that `fairseq-preprocess` wrote.

Line i belongs to sentence pair i. It has `s-t` for each link between the source token at position s and the target
token at position t, counted from 0, as in `0-0 1-2 2-1`. Source and target are X and Y in the names of the files,
train.X-Y.X.bin.
"""

import importlib.metadata
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from ..errors import UserError, first_line
from ..files import atomic_write, check_writable
from ..metrics import LinkCounts
from ..result import Result
from .binarized import count_tokens, load_dictionary

BLOCK_LINES = 2**17  # lines that are read at a time
LINE = re.compile(rb"(?:[0-9]{1,9}-[0-9]{1,9}(?:\s+|$))*")
ALIGNER_MODEL = 3  # of eflomal: an HMM with fertility
NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))

Link = tuple[int, int]


@dataclass(frozen=True)
class ParallelSplit:
    """The sentence pairs of a binarized training split."""

    path: Path  # of its files, without the language and what follows it
    languages: tuple[str, str]  # source and target, in the order of the files' names
    source: Any  # fairseq's data set of the source side
    target: Any  # that of the target side, of the same length
    vocabularies: tuple[int, int]  # the sizes of the dictionaries of source and target
    eos: int  # the token that fairseq appends to every sentence; `sentences` leaves it out

    def __len__(self) -> int:
        return len(self.source)

    def sentences(self, side: Any, indices: Iterable[int]) -> Iterator[np.ndarray]:
        """The tokens of the sentences at `indices` of a side, `source` or `target`; each (T,) int64, without eos."""
        for index in indices:
            tokens = side[index].numpy()
            yield tokens[:-1] if len(tokens) and tokens[-1] == self.eos else tokens


def training_pair(data: str | Path, source: str | None = None, target: str | None = None) -> tuple[str, str]:
    """The languages X and Y of the files train.X-Y.X.bin in a folder; `source` or `target` is None if any will do."""
    names = (re.fullmatch(r"train\.([^.]+)-([^.]+)\.\1\.bin", path.name) for path in sorted(Path(data).glob("*.bin")))
    pairs = [(match[1], match[2]) for match in names if match]
    asked = [pair for pair in pairs if source in (None, pair[0]) and target in (None, pair[1])]
    if len(asked) == 1:
        return asked[0]
    expected = f"train.{source or 'X'}-{target or 'Y'}.{source or 'X'}.bin"
    if not asked:
        others = f" but {', '.join(map('-'.join, pairs))}" if pairs else ""
        raise UserError(f"{data}: found no {expected}{others}; expected a parallel split of fairseq-preprocess")
    raise UserError(f"{data}: found the language pairs {', '.join(map('-'.join, asked))}; expected one")


def load_parallel(data: str | Path, languages: tuple[str, str]) -> ParallelSplit:
    """The training split of a language pair, named as the files of the folder are."""
    from fairseq.data import data_utils

    path = Path(data) / f"train.{'-'.join(languages)}"
    dictionaries = [load_dictionary(data, f"dict.{language}.txt") for language in languages]
    sides = []
    for language, dictionary in zip(languages, dictionaries, strict=True):
        count_tokens(data, dictionary, f"{path.name}.{language}")  # refuses damaged files
        sides.append(data_utils.load_indexed_dataset(f"{path}.{language}", dictionary))
    if len(sides[0]) != len(sides[1]):
        lengths = " and ".join(f"{len(side)} of {language}" for side, language in zip(sides, languages, strict=True))
        raise UserError(f"{path}: found {lengths}; expected as many sentences on both sides; run fairseq-preprocess")
    return ParallelSplit(path, languages, *sides, tuple(map(len, dictionaries)), dictionaries[0].eos())


def read_links(path: str | Path, split: ParallelSplit) -> LinkCounts:
    """Counts how often each pair of a source and a target token is linked by a file of word alignments.

    The file, in Pharaoh format, has a line, which may be empty, for each sentence pair of the split. Each pair of
    tokens is in the result once. Memory grows with the number of distinct pairs, not with that of lines.
    """
    try:
        with open(path, "rb") as file:
            count = sum(1 for _ in file)
    except OSError as error:
        raise UserError(f"{path}: unreadable ({first_line(error)}); expected alignments in Pharaoh format") from error
    if count != len(split):
        raise UserError(f"{path}: found {count} lines; expected {len(split)}, one per sentence pair of {split.path}")
    codes = counts = np.zeros(0, dtype=np.int64)
    progress = tqdm(total=len(split), desc="links", unit="pair", disable=None, leave=False)
    with open(path, "rb") as file, progress as bar:
        for first in range(0, len(split), BLOCK_LINES):
            lines = list(itertools.islice(file, BLOCK_LINES))
            linked, times = np.unique(_codes(lines, split, first, path), return_counts=True)
            codes, index = np.unique(np.concatenate([codes, linked]), return_inverse=True)
            counts = np.bincount(index, np.concatenate([counts, times]), len(codes)).astype(np.int64)
            bar.update(len(lines))
    if not len(codes):
        raise UserError(f"{path}: found no link; expected some, as 0-0 1-2")
    source, target = np.divmod(codes, split.vocabularies[1])
    return LinkCounts(*map(torch.from_numpy, (source, target, counts)))


def _codes(lines: list[bytes], split: ParallelSplit, first: int, path: str | Path) -> np.ndarray:
    """The linked pairs of a block of lines, each as one int64: source token × size of the target dictionary + target.

    `first` is the number of the block's first line in the file `path`, from 0.
    """
    for number, line in enumerate(lines, first + 1):
        if not LINE.fullmatch(line.strip()):
            word = next(word for word in line.split() if not LINE.fullmatch(word)).decode(errors="replace")[:40]
            raise UserError(f"{path}, line {number}: found {word!r}; expected sure links in Pharaoh format, as 0-0")
    numbers = map(int, b" ".join(lines).replace(b"-", b" ").split())
    positions = np.fromiter(numbers, dtype=np.int64).reshape(-1, 2).T  # 2 x L
    pair = np.repeat(np.arange(len(lines)), [line.count(b"-") for line in lines])  # L, the line of each link
    indices = range(first, first + len(lines))
    sides = [list(split.sentences(side, indices)) for side in (split.source, split.target)]
    lengths = np.array([[len(sentence) for sentence in side] for side in sides])  # 2 x lines
    beyond = (positions >= lengths[:, pair]).any(0).nonzero()[0]
    if len(beyond):
        line, (s, t) = pair[beyond[0]], positions[:, beyond[0]]
        source, target = lengths[:, line]
        where = f"{path}, line {first + line + 1}"
        raise UserError(f"{where}: found the link {s}-{t} in a pair of {source} source and {target} target tokens")
    starts = lengths.cumsum(1) - lengths  # where each sentence starts among the tokens of the block
    linked = [np.concatenate(side)[starts[i, pair] + positions[i]] for i, side in enumerate(sides)]
    return linked[0] * split.vocabularies[1] + linked[1]


def parse_links(line: str) -> set[Link]:
    """The links of a line in Pharaoh format."""
    return {(int(s), int(t)) for s, t in (link.split("-") for link in line.split())}


def symmetrize(forward: set[Link], reverse: set[Link]) -> set[Link]:
    """Joins the links (s, t) of two directions by grow-diag-final-and.

    It starts from the links that both directions have. "Grow-diag": as long as one is found, a link of either direction
    is added that is next to a link already there, diagonally too, and has a word that is not linked yet. "Final-and":
    then the links of `forward` are added, and after them those of `reverse`, if neither of their words is linked yet.
    Links are visited by source, then by target position, and the neighbors of a link in the order of `NEIGHBORS`.

    Reference: Koehn et al. (2003), Sec. 3.1; diag and final-and as in Koehn et al. (2005).
    """
    # Not NLTK's grow_diag_final_and, whose tests for linked words never fail: it returns all of forward | reverse.
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
                for down, right in NEIGHBORS:
                    near = (s + down, t + right)
                    if near in union and (near[0] not in sources or near[1] not in targets):
                        add(near)
    for direction in (forward, reverse):
        for link in sorted(direction - links):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return links


def align_split(data: str | Path, output: str | Path) -> Result:
    """Aligns the words of a parallel training split by eflomal, in both directions, combined by grow-diag-final-and.

    Args:
        data: folder written by `fairseq-preprocess`, with train.X-Y.X.bin.
        output: alignments to write.

    Returns:
        Result: a single row, named by `output`, with `sentence_pairs`, their number; the signature has all settings
        that affect the links.

    Reference: Östling and Tiedemann (2016).
    """
    try:
        import eflomal
    except ImportError as error:
        raise UserError(
            f"align: eflomal is missing ({first_line(error)}); pip install '.[align]', or give align-sim the links of "
            "another aligner, such as fast_align"
        ) from error
    split = load_parallel(data, training_pair(data))
    check_writable(output)

    def text(side: Any, language: str) -> Iterator[str]:
        """The sentences of a side, tokens as their numbers, which no aligner can split or change."""
        indices = tqdm(range(len(split)), desc=f"reading {language}", unit="sentence", disable=None, leave=False)
        return (" ".join(map(str, sentence.tolist())) for sentence in split.sentences(side, indices))

    with tempfile.TemporaryDirectory() as temporary_folder:
        forward, reverse = (Path(temporary_folder) / direction for direction in ("forward", "reverse"))
        texts = map(text, (split.source, split.target), split.languages)
        quiet = not sys.stderr.isatty()
        try:  # both files then have links as source-target
            eflomal.Aligner(model=ALIGNER_MODEL).align(
                *texts, links_filename_fwd=str(forward), links_filename_rev=str(reverse), quiet=quiet
            )
        except (subprocess.CalledProcessError, OSError) as error:
            raise UserError(f"align: eflomal failed ({first_line(error)}); see what it said above") from error

        def write(temporary: Path) -> None:
            with forward.open() as ahead, reverse.open() as back, temporary.open("w", encoding="utf-8") as file:
                both = zip(ahead, back, strict=True)
                for lines in tqdm(both, "symmetrizing", total=len(split), unit="pair", disable=None, leave=False):
                    links = symmetrize(*map(parse_links, lines))
                    file.write(" ".join(f"{s}-{t}" for s, t in sorted(links)) + "\n")

        atomic_write(output, write)
    settings = {
        "aligner": f"eflomal-{importlib.metadata.version('eflomal')},no-seed",
        "model": ALIGNER_MODEL,
        "symmetrized": "grow-diag-final-and",
        "languages": "-".join(split.languages),
        "sentence-pairs": len(split),
    }
    return Result({str(output): {"sentence_pairs": len(split)}}, {"sentence_pairs": [""]}, settings)
