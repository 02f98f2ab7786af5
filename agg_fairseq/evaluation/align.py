"""Word alignments of a parallel training split, by eflomal."""

import importlib.metadata
import sys
import tempfile
from pathlib import Path

from ..data.alignments import load_parallel, parse_links, sentences
from ..data.binarized import training_pair
from ..files import atomic_write, check_writable, read_lines
from ..result import Result

ALIGNER_MODEL = 3  # of eflomal: an HMM with fertility


def align_split(data: str | Path, output: str | Path) -> Result:
    """Aligns the words of a parallel training split; a link is one of both directions.

    Args:
        data: folder written by `fairseq-preprocess`, with train.X-Y.X.bin.
        output: alignments to write.
    """
    import eflomal

    languages = training_pair(data)
    sides = load_parallel(data, languages)
    number = len(sides[0].ends)
    check_writable(output)

    texts = []
    for side in sides:  # as numbers, which no aligner can split or change
        texts.append(" ".join(map(str, tokens)) for tokens in sentences(side))
    with tempfile.TemporaryDirectory() as folder:
        forward, reverse = Path(folder) / "forward", Path(folder) / "reverse"
        eflomal.Aligner(model=ALIGNER_MODEL).align(
            *texts,
            links_filename_fwd=str(forward),
            links_filename_rev=str(reverse),  # as source-target too
            quiet=not sys.stderr.isatty(),
        )

        def write(temporary: Path) -> None:
            both = zip(read_lines(forward, "links"), read_lines(reverse, "links"), strict=True)
            with temporary.open("w", encoding="utf-8") as file:
                for ahead, back in both:
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
