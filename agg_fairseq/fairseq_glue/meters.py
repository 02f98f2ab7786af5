"""fairseq's meters, in which a criterion logs its numbers."""

from __future__ import annotations

from collections.abc import Iterable

from fairseq.logging import metrics


def leave_out_empty_meters(names: Iterable[str]) -> None:
    """Makes the active aggregators forget the meters that were not updated in the present interval.

    fairseq sets meters to zero after each line of the log, and keeps them: of one that was not updated since it would
    log null, and of an empty `nll_loss` a perplexity of 0.

    Args:
        names: of the averages, `nll_loss` among them.
    """
    names = list(names)
    for aggregator in metrics.get_active_aggregators():
        empty = {name for name in names if name in aggregator and not aggregator[name].count}
        if "nll_loss" in empty or "nll_loss" not in aggregator:
            empty.add("ppl")
        for name in empty:
            del aggregator[name]
        # The meters are numbered anew, as they are after a resume.
        kept = [(priority, name) for priority, _, name in aggregator.priorities if name not in empty]
        aggregator.priorities = [(priority, number, name) for number, (priority, name) in enumerate(kept)]
