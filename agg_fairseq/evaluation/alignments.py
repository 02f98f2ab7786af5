"""Word alignments of a parallel training split, by eflomal, and the similarity of the embeddings of
words that were aligned."""

import importlib.metadata
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from .. import metrics
from ..checkpoints import Checkpoint
from ..data.alignments import load_parallel, read_links, sentences
from ..data.binarized import folders, load_dictionary, split_parts, training_pair
from ..errors import UserError
from ..files import atomic_write, check_writable, read_lines
from ..names import GROUPINGS
from ..result import Result
from .inputs import check_row_names, load_vocabulary, matrix_setting

ALIGNER_MODEL = 3  # of eflomal: an HMM with fertility
ORTHOGONAL, LABELED = "orthogonal", "labeled tokens"  # the rows that are of no model


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
                    links = {*ahead.split()} & {*back.split()}
                    in_order = sorted(links, key=lambda link: [*map(int, link.split("-"))])
                    file.write(" ".join(in_order) + "\n")

        atomic_write(output, write)
    settings = {
        "aligner": f"eflomal-{importlib.metadata.version('eflomal')},no-seed",
        "model": ALIGNER_MODEL,
        "symmetrized": "intersection",
        "languages": "-".join(languages),
        "sentence-pairs": number,
    }
    return Result({str(output): {"sentence_pairs": number}}, {"sentence_pairs": [""]}, settings)


def align_sim(
    models: Mapping[str, Checkpoint],
    data: str | Path,
    alignments: str | Path,
    *,
    groups: str = "frequency",
) -> Result:
    """Measures whether embeddings are similar for words of two languages that were aligned.

    Args:
        models: translation models over one joined dictionary.
        data: folder of `fairseq-preprocess`; tokens are counted in its target side.
        alignments: word alignments of that split in Pharaoh format, as `align` writes them.
    """
    check_row_names(models, ORTHOGONAL, LABELED)
    vocabulary = load_vocabulary(models, data)
    members = vocabulary.groups(groups)
    pair = vocabulary.languages
    if pair is None or load_dictionary(data, f"dict.{pair[0]}.txt").symbols != vocabulary.tokens:
        found = "separate dictionaries" if pair else "a language model"
        raise UserError(
            f"{data}: found {found}; AlignSim expects that of fairseq-preprocess "
            "--joined-dictionary"
        )
    # Links are in the order of the files, on which a model from Y to X is trained too.
    part = split_parts(folders(data)[0], "train", pair)[0].name
    order = pair if part.startswith(f"train.{'-'.join(pair)}.") else (pair[1], pair[0])
    links = read_links(alignments, load_parallel(data, order))

    rows = {}
    for name, model in models.items():
        embedding = model.output_embedding
        values = metrics.align_sim(embedding.weight, links)
        rows[name] = {
            "path": str(model),
            "matrix": embedding.description,
            "align_sim": metrics.group_means(values, members),
        }
    unrelated = metrics.orthogonal_align_sim(links, len(vocabulary.tokens))
    rows[ORTHOGONAL] = {"align_sim": metrics.group_means(unrelated, members)}
    labeled = replace(members, group_ids=members.group_ids[links.tokens()])
    rows[LABELED] = {"align_sim": labeled.sizes() | {"total": len(labeled.group_ids)}}
    settings = {
        "matrix": matrix_setting(models),
        "groups": GROUPINGS[groups],
        "frequencies": "target-side",
        "temperature": f"{metrics.TEMPERATURE:g}",
        "links": int(links.count.sum()),
        "pairs": len(links.count),
        "labels": "symmetric",
    }
    columns = {"align_sim": (*members.names, "total")}
    return Result(rows, columns, settings, {"groups": members.sizes()})
