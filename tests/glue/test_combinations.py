"""Each criterion with every pair of values of its options; every model and optimizer is tested elsewhere."""

import math
from itertools import combinations

import pytest
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import iterators

from tests.small_trainings import F2_LM, LM, trainer_for

WEIGHTS = (None, "1e-4", "1", "10")
UPDATES = ("0", "1", "100")

# The values of each option; None leaves it out.
OF_F2 = {
    "--update-freq": ("1", "2", "3"),
    "--center-output": (None, ""),
    "--label-smoothing": ("0", "0.1", "0.9"),
    "--embedding-stats-interval": ("0", "1", "2"),
    "--cosreg-gamma": WEIGHTS,
    "--mu-loss": WEIGHTS,
}
SHARED = {**OF_F2, "--ul-alpha": WEIGHTS, "--z-loss": WEIGHTS, "--adv-epsilon": (None, "1e-4", "0.1", "1")}
OWN = {
    "agg": {
        "--agg-alpha": (None, "1e-6", "0.02", "0.99"),
        "--agg-rare-fraction": (None, "1e-6", "0.3", "0.99"),
        "--agg-window": UPDATES,
        "--agg-gates": ("both", "g1", "g2", "faded"),
        "--agg-static-after-epoch": UPDATES,
        "--agg-count-current-batch": (None, ""),
    },
    "agps": {
        "--agps-rare-rank": ("0", "5", "20"),
        "--agps-mu1": (None, "0.5", "10"),
        "--agps-mu2": (None, "0.5", "500"),
        "--agps-variant": ("eq15", "algorithm1"),
    },
    "freeze_rare": {
        "--freeze-parts": ("all", "b", "c", "bc"),
        "--freeze-fraction": (None, "1e-6", "0.3", "0.99"),
        "--freeze-below": (None, "0.02", "0.3"),
        "--freeze-until": UPDATES,
    },
    "unlikelihood_sequence": {
        "--ul-sequence-rate": ("0", "0.5", "1"),
        "--ul-ngram": ("1", "2", "4"),
        "--ul-prefix-length": ("1", "3", "5"),
        "--ul-completion-length": ("1", "4", "9"),
    },
    "f2_softmax": {},
}
ONE_OF = (("--agg-alpha", "--agg-rare-fraction"), ("--freeze-below", "--freeze-fraction"))


def fits(row):
    """May these values, by option, be together? The others are refused, as other tests check."""
    freezes_and_centers = row.get("--freeze-parts") == "all" and row.get("--center-output") == ""
    return not freezes_and_centers and not any(row.get(one) and row.get(other) for one, other in ONE_OF)


def trainings(criterion):
    """Rows of values by option, with each pair of values in one of them.

    Each next row begins with a pair that is missing, and takes of each option the value that adds most.
    """
    values_of = {**(OF_F2 if criterion == "f2_softmax" else SHARED), **OWN[criterion]}
    pairs = combinations([(option, value) for option, values in values_of.items() for value in values], 2)
    missing = {frozenset(pair): None for pair in pairs if pair[0][0] != pair[1][0] and fits(dict(pair))}
    while missing:
        row = dict(next(iter(missing)))
        for option in values_of:
            longer = [{**row, option: value} for value in ([row[option]] if option in row else values_of[option])]
            row = max(
                filter(fits, longer),
                key=lambda row: sum(frozenset(pair) in missing for pair in combinations(row.items(), 2)),
            )
        for pair in combinations(row.items(), 2):
            missing.pop(frozenset(pair), None)
        yield row


def losses(data, criterion, row):
    """Of two updates and a validation; likelihood in validation has to be that of fairseq's cross_entropy."""
    options = [f"{name}={value}" if value else name for name, value in row.items() if value is not None]
    base = F2_LM if criterion == "f2_softmax" else LM
    trainer, iterator = trainer_for(data, "--criterion", criterion, *options, base=base)
    groups = iterators.GroupedIterator(iterator.next_epoch_itr(shuffle=False), int(row["--update-freq"]))
    found = [float(trainer.train_step(next(groups))["loss"]) for _ in range(2)]
    sample = next(groups)[0]
    trainer.begin_valid_epoch(1)
    likelihood = trainer.valid_step(sample)["nll_loss"]
    trainer._criterion, trainer._wrapped_criterion = CrossEntropyCriterion(trainer.task, False), None
    assert likelihood == pytest.approx(trainer.valid_step(sample)["loss"], rel=1e-3, abs=2e-3)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("criterion", OWN)
def test_every_pair_of_options_trains(criterion, lm_data):
    for row in trainings(criterion):
        try:
            found = losses(lm_data, criterion, row)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{criterion}: {row}") from error
        assert all(map(math.isfinite, found)), (criterion, row, found)
