"""Word alignment of a parallel training split by eflomal, in both directions, joined by grow-diag-final-and."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..errors import UserError, first_line
from ..files import check_not_inside, check_writable, write_whole
from ..result import Result, signature
from .alignments import format_links, load_parallel, parse_links, symmetrize, training_pair

DATA_ENDINGS = (".bin", ".idx", ".txt")
MODELS = (1, 2, 3)


def align_split(
    data: str | Path, output: str | Path, *, source: str | None = None, target: str | None = None, model: int = 3
) -> Result:
    """Aligns the words of a parallel training split, as `align-sim` needs them.

    The binarized split is aligned, so the positions are those of the model's sub-words. The aligner is eflomal, which
    `pip install '.[align]'` installs. It aligns both directions, and the links of the two are combined by
    grow-diag-final-and. The file has a line for each sentence pair, `0-0 1-2 …`, with the positions, from 0, of a
    source and a target token for each link. Sentences of more than 1023 tokens have no links. eflomal cannot be seeded:
    a second run finds slightly different links.

        agg-fairseq align data-bin/wmt14.en-de --output wmt14.en-de.align

    Args:
        data: folder written by `fairseq-preprocess`, with train.X-Y.X.bin.
        output: alignments to write.
        source: source language X; None: as the files are named.
        target: target language Y; None: as the files are named.
        model: of eflomal: 1 (IBM model 1), 2 (HMM) or 3 (HMM with fertility).

    Returns:
        Result: a single row, named by `output`, with the number of sentence pairs; the signature has all settings that
        affect the links.

    Raises:
        UserError: eflomal is missing or fails; `output` is a file of the data, or cannot be written; as `training_pair`
            and `load_parallel`.

    Reference: Östling and Tiedemann (2016).
    """
    try:
        import eflomal
    except ImportError as error:
        raise UserError(
            f"align: eflomal is missing ({first_line(error)}); pip install '.[align]', or give alignments of "
            "another aligner, such as fast_align, in Pharaoh format to align-sim"
        ) from error
    split = load_parallel(data, training_pair(data, source, target))
    if Path(output).suffix in DATA_ENDINGS:  # alignments of an earlier call may be replaced
        check_not_inside("--output", output, data)
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
            eflomal.Aligner(model=model).align(
                *texts, links_filename_fwd=str(forward), links_filename_rev=str(reverse), quiet=quiet
            )
        except (subprocess.CalledProcessError, OSError) as error:
            raise UserError(
                f"align: eflomal failed ({first_line(error)}); see what it said above, and whether there is room in "
                f"{tempfile.gettempdir()}"
            ) from error

        def write(temporary: Path) -> None:
            with forward.open() as ahead, reverse.open() as back, temporary.open("w", encoding="utf-8") as file:
                both = zip(ahead, back, strict=True)
                for lines in tqdm(both, "symmetrizing", total=len(split), unit="pair", disable=None, leave=False):
                    file.write(format_links(symmetrize(*map(parse_links, lines))) + "\n")

        write_whole(output, write)
    settings = signature(
        f"aligner:eflomal-{importlib.metadata.version('eflomal')},no-seed",
        f"model:{model}",
        "symmetrized:grow-diag-final-and",
        f"languages:{'-'.join(split.languages)}",
        f"sentence-pairs:{len(split)}",
    )
    return Result.of({str(output): {"sentence pairs": len(split)}}, settings)
