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
from ..result import signature
from .alignments import format_links, load_parallel, parse_links, symmetrize, training_pair

DATA_ENDINGS = (".bin", ".idx", ".txt")
MODELS = {1: "IBM model 1", 2: "HMM", 3: "HMM with fertility"}


def align_split(
    data: str | Path, output: str | Path, *, source: str | None = None, target: str | None = None, model: int = 3
) -> tuple[int, str]:
    """Aligns the tokens of the training split, and writes a line in Pharaoh format for each sentence pair.

    Positions are those of the model's sub-words. A sentence of more than 1023 tokens gets no links. eflomal draws
    random numbers without a seed, so that a second call finds somewhat different links.

    Args:
        data: folder written by `fairseq-preprocess`.
        output: the file to write.
        source: language X of the files train.X-Y.X.bin; None: as the only pair of files is named.
        target: language Y, likewise.
        model: of eflomal, one of `MODELS`.

    Returns:
        The number of sentence pairs, and a signature with all settings that affect the links.

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
    return len(split), signature(
        f"aligner:eflomal-{importlib.metadata.version('eflomal')},no-seed",
        f"model:{model}",
        "symmetrized:grow-diag-final-and",
        f"languages:{'-'.join(split.languages)}",
        f"sentence-pairs:{len(split)}",
    )
