"""Pictures of how often tokens occur, in the training text and in generated texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from ..data.binarized import count_tokens, load_dictionary
from ..errors import UserError
from ..metrics.groups import MASS_GROUPS
from ..names import HUMAN
from . import style
from .measurements import Evaluations, Row, number, texts_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def frequencies(folders: Mapping[str, str | Path]) -> Figure:
    """Draws the number of occurrences of each token in the training split by its rank, on logarithmic scales.

    A curve for each folder, or for each language of a parallel corpus. Tokens without occurrences are left out.

    Args:
        folders: written by `fairseq-preprocess`, with the training split, by the names of the curves.

    Raises:
        UserError: a folder has no training split, or a file in it is damaged.

    Reference: Gao et al. (2019), Fig. 3.
    """
    counts: list[tuple[str, Tensor]] = []
    for name, folder in zip(folders, map(Path, folders.values()), strict=True):
        if (folder / "dict.txt").is_file():
            counts.append((name, count_tokens(folder, load_dictionary(folder))))
            continue
        splits = sorted(path.name.removesuffix(".bin") for path in folder.glob("train.*-*.*.bin"))
        if not splits:
            raise UserError(
                f"{folder}: found neither dict.txt nor train.*-*.*.bin; expected a folder of fairseq-preprocess"
            )
        for split in splits:
            language = split.rsplit(".", 1)[1]
            dictionary = load_dictionary(folder, f"dict.{language}.txt")
            counts.append((f"{name} {language}", count_tokens(folder, dictionary, split)))
    figure, axes = style.new_figure()
    for index, (name, of_tokens) in enumerate(counts):
        seen = of_tokens[of_tokens > 0].sort(descending=True).values.tolist()
        style.line(axes[0][0], index, range(1, len(seen) + 1), seen, name)
    style.finish(axes[0][0], xlabel="rank", ylabel="occurrences", xscale="log", yscale="log")
    return style.finish_figure(figure)


def token_shares(evaluations: Evaluations) -> Figure:
    """Draws the share of frequent, medium, rare and very rare tokens in generated texts and in the human text.

    A bar for each model and group, and a dark gray one for the human text. The groups are of the tokens that make up
    the top 40%, next 30%, next 20% and last 10% of the training text.

    Args:
        evaluations: of `text_metrics` with `data`, all of the same split.

    Raises:
        UserError: an evaluation has no shares; the name of a model occurs twice; the human texts are not the same.

    Reference: Choi et al. (2020), Fig. 2.
    """

    def shares(row: Row) -> list[float]:
        if not row.get("shares"):
            raise UserError(f"{', '.join(evaluations)}: found no shares; run text-metrics with --data")
        return [number(row["shares"][group]) for group in MASS_GROUPS]

    models, human = texts_of(evaluations, shares)
    figure, axes = style.new_figure(width=7.0)
    width = 0.8 / (len(models) + 1)  # 0.2 of the distance between two groups is left free
    for index, (name, of_groups) in enumerate([*models.items(), (HUMAN, human)]):
        places = [group + (index - len(models) / 2) * width for group in range(len(MASS_GROUPS))]
        percentages = [100 * share for share in of_groups]
        style.bars(axes[0][0], index if index < len(models) else None, places, percentages, width, name)
    axes[0][0].set_xticks(range(len(MASS_GROUPS)), MASS_GROUPS)
    style.finish(axes[0][0], ylabel="% of tokens")
    return style.finish_figure(figure)
