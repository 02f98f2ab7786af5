"""Averages checkpoints of a run into one, as Vaswani et al. (2017) did before they translated.

INPUT is the folder of a run, of which the last checkpoints are averaged, those by epoch or those by
update, which --save-interval-updates writes; or the checkpoints themselves. Parameters are summed
in float64; all else is that of the newest checkpoint, or of the first INPUT, without what is only
needed to resume that run. The result is an ordinary checkpoint of fairseq;
the table has the updates of each that was read.

    agg-fairseq average-checkpoints runs/agg --last 20 --by update -o runs/agg/average.pt
    agg-fairseq average-checkpoints a/checkpoint_best.pt b/checkpoint_best.pt -o average.pt
"""

from .options import calling

add_arguments, run = calling("checkpoints.averaging", "average_checkpoints")
