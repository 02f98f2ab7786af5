"""The picture of how often tokens occur in the training text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from ..data.binarized import count_tokens, load_dictionary
from ..errors import UserError
from . import style


def frequencies(folders: Mapping[str, str | Path]) -> style.Figure:
    """Draws the number of occurrences of each token in the training split by its rank, on logarithmic scales.

    A curve for each folder, or for each language of a parallel corpus. Tokens without occurrences are left out.

    Args:
        folders: written by `fairseq-preprocess`, by the names of the curves.

    Reference: Gao et al. (2019), Fig. 3.
    """
    counts: dict[str, Tensor] = {}
    for name, folder in zip(folders, map(Path, folders.values()), strict=True):
        if (folder / "dict.txt").is_file():
            counts[name] = count_tokens(folder, load_dictionary(folder))
            continue
        splits = sorted(path.name.removesuffix(".bin") for path in folder.glob("train.*-*.*.bin"))
        if not splits:
            raise UserError(f"{folder}: found neither dict.txt nor train.*-*.*.bin, which fairseq-preprocess writes")
        for split in splits:
            language = split.rsplit(".", 1)[1]
            dictionary = load_dictionary(folder, f"dict.{language}.txt")
            counts[f"{name} {language}"] = count_tokens(folder, dictionary, split)
    figure, ((axis,),) = style.new_figure()
    for index, (name, of_tokens) in enumerate(counts.items()):
        seen = of_tokens[of_tokens > 0].sort(descending=True).values.tolist()
        style.line(axis, index, range(1, len(seen) + 1), seen, name)
    style.finish(axis, xlabel="rank", ylabel="occurrences", xscale="log", yscale="log")
    return style.finish_figure(figure)
