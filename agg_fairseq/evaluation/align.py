"""Word alignments of a parallel training split, by eflomal."""

import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

from tqdm import tqdm

from ..data.alignments import load_parallel, parse_links, sentences
from ..data.binarized import training_pair
from ..errors import UserError, first_line
from ..files import atomic_write, check_writable, read_lines
from ..result import Result

ALIGNER_MODEL = 3  # of eflomal: an HMM with fertility


def align_split(data: str | Path, output: str | Path) -> Result:
    """Aligns the words of a parallel training split; a link is one of both directions.

    Args:
        data: folder written by `fairseq-preprocess`, with train.X-Y.X.bin.
        output: alignments to write.

    Returns:
        Result: a single row, named by `output`, with `sentence_pairs`, their number.
    """
    import eflomal

    languages = training_pair(data)
    sides = load_parallel(data, languages)
    number = len(sides[0])
    check_writable(output)

    # as numbers, which no aligner can split or change
    source, target = ((" ".join(map(str, tokens)) for tokens in sentences(side)) for side in sides)
    with tempfile.TemporaryDirectory() as folder:
        forward, reverse = Path(folder) / "forward", Path(folder) / "reverse"
        try:
            eflomal.Aligner(model=ALIGNER_MODEL).align(
                source,
                target,
                links_filename_fwd=str(forward),
                links_filename_rev=str(reverse),  # as source-target too
                quiet=not sys.stderr.isatty(),
            )
        except subprocess.CalledProcessError as error:
            raise UserError(
                f"eflomal failed ({first_line(error)}); see what it said above"
            ) from error

        def write(temporary: Path) -> None:
            both = zip(read_lines(forward, "links"), read_lines(reverse, "links"), strict=True)
            with temporary.open("w", encoding="utf-8") as file:
                for ahead, back in tqdm(both, "links", number, leave=False, disable=None):
                    links = {*parse_links(ahead)} & {*parse_links(back)}
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
