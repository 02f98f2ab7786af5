"""The gated loss of a micro-batch."""

from agg_fairseq.functional import SmoothedLikelihood, TrainingLoss, chunked


def gated(h, w, y, *, bias=None, gates=None, position_weight=None, ignore_index=-100, **terms):
    """The output of a `TrainingLoss` in training, with these gates and weights of positions."""
    loss = TrainingLoss(ignore_index=ignore_index, **terms)
    return loss(h, w, y, bias, gates=gates, position_weight=position_weight)


def summed_nll(h, w, y, *, label_smoothing=0.0, **options):
    """The sum of the likelihood over all targets."""
    return chunked(SmoothedLikelihood(label_smoothing), h, w, y, **options)[0]
