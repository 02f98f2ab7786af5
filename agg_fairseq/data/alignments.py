"""Word alignments in Pharaoh format of a parallel training split that `fairseq-preprocess` wrote.

Line i belongs to sentence pair i. It has `s-t` for each link between the source token at position s
and the target token at position t, counted from 0, as in `0-0 1-2 2-1`. Source and target are X and
Y in the names of the files, train.X-Y.X.bin.
"""

import importlib.metadata
import itertools
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ..errors import UserError, first_line
from ..files import atomic_write, check_writable, read_lines
from ..metrics import LinkCounts
from ..result import Result
from .binarized import count_tokens, load_dictionary, training_pair

EOS = 2  # the token that fairseq appends to every sentence
LINK = re.compile(r"([0-9]+)-([0-9]+)")
ALIGNER_MODEL = 3  # of eflomal: an HMM with fertility

Link = tuple[int, int]
Sides = tuple[Any, Any]  # fairseq's data sets of source and target, of the same length


def load_parallel(data: str | Path, languages: tuple[str, str]) -> Sides:
    """The training split of a language pair, named as the files of the folder are."""
    from fairseq.data import data_utils

    split, sides = f"train.{'-'.join(languages)}", []
    for language in languages:
        dictionary = load_dictionary(data, f"dict.{language}.txt")
        count_tokens(data, dictionary, f"{split}.{language}")  # refuses damaged files
        sides.append(
            data_utils.load_indexed_dataset(f"{Path(data) / split}.{language}", dictionary)
        )
    source, target = sides
    if len(source) != len(target):
        found = f"{len(source)} sentences of {languages[0]} and {len(target)} of {languages[1]}"
        raise UserError(f"{data}/{split}: found {found}; run fairseq-preprocess again")
    return source, target


def sentences(side: Any) -> Iterator[list[int]]:
    """The tokens of each sentence of a side, without eos."""
    for index in range(len(side)):
        tokens = side[index].tolist()
        yield tokens[:-1] if tokens[-1:] == [EOS] else tokens


def read_links(path: str | Path, sides: Sides) -> LinkCounts:
    """Counts how often each pair of a source and a target token is linked by a file of word
    alignments.

    The file, in Pharaoh format, has a line, which may be empty, for each sentence pair of the
    split. Each pair of tokens is in the result once. Memory grows with the number of distinct
    pairs, not with that of lines.
    """
    counts: Counter[Link] = Counter()
    lines = read_lines(path, "alignments in Pharaoh format")
    pairs = zip(*map(sentences, sides), strict=True)
    progress = tqdm(pairs, "links", len(sides[0]), unit="pair", disable=None, leave=False)
    for number, (line, pair) in enumerate(itertools.zip_longest(lines, progress), 1):
        if line is None or pair is None:
            found = "too few lines" if line is None else "more lines"
            raise UserError(
                f"{path}: found {found}; expected {len(sides[0]):,}, one per sentence pair"
            )
        source, target = pair
        try:
            counts.update((source[s], target[t]) for s, t in parse_links(line))
        except (ValueError, IndexError):
            of_tokens = f"between {len(source)} source and {len(target)} target tokens"
            found = repr(line.strip()[:80])
            raise UserError(
                f"{path}, line {number}: found {found}; expected links as 0-0 1-2 {of_tokens}"
            ) from None
    if not counts:
        raise UserError(f"{path}: found no link; expected some, as 0-0 1-2")
    return LinkCounts(*torch.tensor([(*pair, count) for pair, count in counts.items()]).T)


def parse_links(line: str) -> list[Link]:
    """The links of a line in Pharaoh format; ValueError for anything else, such as the possible
    link `0p0`."""
    matches = [LINK.fullmatch(word) for word in line.split()]
    if None in matches:
        raise ValueError
    return [(int(match[1]), int(match[2])) for match in matches if match]


def align_split(data: str | Path, output: str | Path) -> Result:
    """Aligns the words of a parallel training split by eflomal; a link is one that it finds in both
    directions.

    Args:
        data: folder written by `fairseq-preprocess`, with train.X-Y.X.bin.
        output: alignments to write.

    Returns:
        Result: a single row, named by `output`, with `sentence_pairs`, their number; the signature
        has all settings that affect the links.

    Reference: Östling and Tiedemann (2016).
    """
    try:
        import eflomal
    except ImportError as error:
        raise UserError(
            f"eflomal is missing ({first_line(error)}); pip install '.[align]', or give align-sim "
            "the links of "
            "another aligner, such as fast_align"
        ) from error
    languages = training_pair(data)
    sides = load_parallel(data, languages)
    number = len(sides[0])
    check_writable(output)

    # The tokens as numbers, which no aligner can split or change.
    texts = [(" ".join(map(str, tokens)) for tokens in sentences(side)) for side in sides]
    with tempfile.TemporaryDirectory() as temporary_folder:
        forward, reverse = (
            Path(temporary_folder) / direction for direction in ("forward", "reverse")
        )
        # both as source-target
        files = {"links_filename_fwd": str(forward), "links_filename_rev": str(reverse)}
        try:
            eflomal.Aligner(model=ALIGNER_MODEL).align(
                *texts, **files, quiet=not sys.stderr.isatty()
            )
        except subprocess.CalledProcessError as error:
            raise UserError(
                f"eflomal failed ({first_line(error)}); see what it said above"
            ) from error

        def write(temporary: Path) -> None:
            with (
                forward.open() as ahead,
                reverse.open() as back,
                temporary.open("w", encoding="utf-8") as file,
            ):
                both = tqdm(
                    zip(ahead, back, strict=True),
                    "links",
                    number,
                    unit="pair",
                    disable=None,
                    leave=False,
                )
                for forward_links, reverse_links in both:
                    links = {*parse_links(forward_links)} & {*parse_links(reverse_links)}
                    file.write(" ".join(f"{s}-{t}" for s, t in sorted(links)) + "\n")

        atomic_write(output, write)
    settings = {
        "aligner": f"eflomal-{importlib.metadata.version('eflomal')},no-seed",
        "model": ALIGNER_MODEL,
        "symmetrized": "intersection",
        "languages": "-".join(languages),
        "sentence-pairs": number,
    }
    return Result({str(output): {"sentence_pairs": number}}, {"sentence_pairs": [""]}, settings)
