"""Choi et al. (2020), Table 9: which of two models is better in more measures of greedy texts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from agg_fairseq.names import HUMAN

from .experiment import Measure, Model, Workspace
from .measures import perplexity, texts

if TYPE_CHECKING:  # imported where they are used: --list and --dry-run work without torch
    from agg_fairseq.evaluation import Result

LOWER, HIGHER, HUMAN_LIKE = ("PPL", "KLD"), ("MSJ-3",), ("SB-3", "Dist-3", "Rep (%)", "Uniq")
"""Seven measures: those that are better if lower, if higher, and if nearer to the human texts'.

The paper does not say which n-grams it compares. With trigrams, its Table 2 gives all ten results of its Table 9 on
WikiText-103, which a test checks; with bigrams or the mean over n it does not.
"""


def wins(first: Mapping[str, float], second: Mapping[str, float], human: Mapping[str, float]) -> int:
    """The number of the seven measures in which the first model is better.

    Args:
        first, second: the measures of the two models, by their titles.
        human: those of the human texts.
    """
    better = [first[title] < second[title] for title in LOWER] + [first[title] > second[title] for title in HIGHER]
    better += [abs(first[title] - human[title]) < abs(second[title] - human[title]) for title in HUMAN_LIKE]
    return sum(better)


def duel(workspace: Workspace, model: Model, *, opponent: Model) -> Result:
    """The measures that `model` wins and loses against another model, as `6-1`; a measure may be a draw."""
    from agg_fairseq.evaluation import Column, Result

    measured = [_measures(workspace, one) for one in (model, opponent)]
    human = texts(workspace, model, topk=None)[HUMAN]
    forward, backward = wins(*measured, human), wins(*reversed(measured), human)
    return Result([Column("W-L")], {model.name: [f"{forward}-{backward}"]}, "")


def _measures(workspace: Workspace, model: Model) -> dict[str, float]:
    return {
        **texts(workspace, model, topk=None)[model.name],
        "PPL": perplexity(workspace, model)[model.name]["PPL total"],
    }


def duel_measures(models: Mapping[str, Model]) -> list[Measure]:
    """A column per opponent; None against itself."""

    def against(workspace: Workspace, model: Model, opponent: Model) -> Result:
        if model == opponent:
            from agg_fairseq.evaluation import Column, Result

            return Result([Column("W-L")], {model.name: [None]}, "")
        return duel(workspace, model, opponent=opponent)

    return [Measure(f"against {label}", partial(against, opponent=one), "W-L") for label, one in models.items()]
