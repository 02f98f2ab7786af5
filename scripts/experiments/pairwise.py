"""Choi et al. (2020), Table 9: which of two models is better in more measures of greedy texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agg_fairseq.names import HUMAN

from .experiment import Method, Workspace
from .measures import perplexity, texts

if TYPE_CHECKING:
    from agg_fairseq.result import Result

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


def duel(workspace: Workspace, method: Method, *, opponent: Method) -> Result:
    """The measures that a method wins and loses against another one, as `6-1`; a measure may be a draw.

    None against itself.
    """
    from agg_fairseq.result import Result

    name, results = method.model.name, [texts(workspace, one, topk=None) for one in (method, opponent)]
    first, second = (
        {**found[one.model.name], "PPL": perplexity(workspace, one)[one.model.name]["PPL total"]}
        for found, one in zip(results, (method, opponent), strict=True)
    )
    human = results[0][HUMAN]
    score = f"{wins(first, second, human)}-{wins(second, first, human)}"
    return Result.of({name: {"won-lost": None if method.model == opponent.model else score}}, "")
