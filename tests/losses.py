"""The gated loss of a micro-batch, with all its terms."""

from agg_fairseq.objective import MicroBatch, Objective


def gated(h, w, y, *, bias=None, gates=None, position_weight=None, ignore_index=-100, **terms):
    """The output of an `Objective` in training, with these gates and weights of positions."""
    objective = Objective(len(w), ignore_index=ignore_index, **terms)
    return objective(h, w, y, bias, micro_batch=MicroBatch(gates, position_weight))
