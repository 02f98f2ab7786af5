"""Each criterion with every model, every optimizer and every pair of values of its options."""

import math
from itertools import combinations

import pytest
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import iterators

from tests.small_trainings import AWD, F2_LM, F2_MT, FAMILIES, TIED, trainer_for

F2_MODELS = {"transformer_lm_f2": F2_LM, "transformer_f2": F2_MT}
MODELS = {**FAMILIES, "awd_lstm_lm": AWD, **F2_MODELS}
WEIGHTS = (None, "1e-4", "1", "10")
UPDATES = ("0", "1", "100")

# The values of each factor; None leaves an option out.
MANY = ("model", "optimizer", "training")
SHARED = {
    "model": tuple(MODELS),
    "optimizer": (
        *(("--optimizer", name) for name in "adam sgd nag adagrad adadelta adamax adafactor".split()),
        *(("--optimizer", name, "--weight-decay", decay) for name in ("coupled_adam", "adam_l2") for decay in "01"),
        ("--optimizer", "nt_asgd", "--asgd-patience", "0"), ("--optimizer", "nt_asgd", "--weight-decay", "0.1"),
    ),
    "training": (
        (), ("--clip-norm", "0.1"), ("--sentence-avg",), ("--dropout", "0.3"), ("--lr", "0.1"), ("--lr", "0"),
        ("--lr-scheduler", "inverse_sqrt", "--warmup-updates", "2"), ("--lr-scheduler", "reduce_lr_on_plateau"),
        (TIED,), ("--max-tokens", "32"), ("--batch-size", "1"), ("--checkpoint-activations",),
    ),
    "--update-freq": ("1", "2", "3"),
    "--center-output": (None, ""),
    "--label-smoothing": ("0", "0.1", "0.9"),
    "--embedding-stats-interval": ("0", "1", "2"),
    "--cosreg-gamma": WEIGHTS,
    "--mu-loss": WEIGHTS,
    "--ul-alpha": WEIGHTS,
    "--z-loss": WEIGHTS,
    "--adv-epsilon": (None, "1e-4", "0.1", "1"),
}  # fmt: skip
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
    **{name: {} for name in ("mle", "face", "cosreg", "unlikelihood", "f2_softmax")},
}


def factors_of(criterion):
    """The values of each factor of a training with this criterion."""
    factors = {**SHARED, **OWN[criterion]}
    if criterion == "f2_softmax":
        left_out = ("--ul-alpha", "--z-loss", "--adv-epsilon")
        return {name: v for name, v in factors.items() if name not in left_out} | {"model": tuple(F2_MODELS)}
    models = [model for model in MODELS if model not in F2_MODELS]
    return factors | {"model": [name for name in models if criterion != "unlikelihood_sequence" or "_lm" in name]}


def fits(row):
    """May these values, by factor, be together? Otherwise they are refused, as other tests check, or no options."""
    model, training, frozen = row.get("model", ""), row.get("training", ()), row.get("--freeze-parts")
    centers = row.get("--center-output") == ""
    return not (
        (model in ("fconv_lm", "fconv") and (centers or frozen == "all"))  # whose W weight normalization makes
        or (frozen == "all" and centers)
        or (row.get("--agg-alpha") and row.get("--agg-rare-fraction"))
        or (row.get("--freeze-below") and row.get("--freeze-fraction"))
        or (training[:1] in ((TIED,), ("--checkpoint-activations",)) and model and "transformer" not in model)
        or (training[:1] == ("--dropout",) and model == "awd_lstm_lm")  # which has five options for it
    )


def parts(values):
    """The single values, and the pairs of values of different factors that are not `MANY`."""
    options = [value for value in values if value[0] not in MANY]
    pairs = (pair for pair in combinations(options, 2) if pair[0][0] != pair[1][0])
    return [frozenset(part) for part in (*((value,) for value in values), *pairs)]


def all_trainings():
    """By criterion, rows of values by factor. Each value is in one, and each pair of options with some criterion.

    Each next row begins with what is still missing, and takes of each factor the value that adds most.
    """
    rows, pairs = {}, set()
    for criterion in OWN:
        factors, rows[criterion] = factors_of(criterion), []
        everything = parts([(factor, value) for factor in factors for value in factors[factor]])
        missing = dict.fromkeys(part for part in everything if fits(dict(part)) and part not in pairs)
        while missing:
            row = dict(next(iter(missing)))
            for factor in factors:
                longer = [row | {factor: value} for value in ([row[factor]] if factor in row else factors[factor])]
                row = max(filter(fits, longer), key=lambda row: sum(part in missing for part in parts(row.items())))
            rows[criterion].append(row)
            for part in parts(row.items()):
                missing.pop(part, None)
                pairs |= {part} if len(part) == 2 else set()
    return rows


TRAININGS = all_trainings()


def losses(data, base, criterion, row):
    """Of two updates and a validation; likelihood in validation has to be that of fairseq's cross_entropy."""
    options = ["--criterion", criterion, *row["optimizer"], *row["training"]]
    given = {name: value for name, value in row.items() if name not in MANY and value is not None}
    options += [f"{name}={value}" if value else name for name, value in given.items()]
    trainer, iterator = trainer_for(data, *options, base=base)
    groups = iterators.GroupedIterator(iterator.next_epoch_itr(shuffle=False), int(row["--update-freq"]))
    found = [float(trainer.train_step(next(groups))["loss"]) for _ in range(2)]
    sample = next(groups)[0]
    trainer.begin_valid_epoch(1)
    likelihood = trainer.valid_step(sample)["nll_loss"]
    if "awd_lstm_lm" not in base:  # whose states have gone on
        trainer._criterion, trainer._wrapped_criterion = CrossEntropyCriterion(trainer.task, False), None
        assert likelihood == pytest.approx(trainer.valid_step(sample)["loss"], rel=1e-3, abs=2e-3)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("criterion", OWN)
def test_every_pair_of_options_trains(criterion, lm_data, mt_data):
    for row in TRAININGS[criterion]:
        base = MODELS[row["model"]]
        try:
            found = losses(mt_data if "translation" in base else lm_data, base, criterion, row)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{criterion}: {row}") from error
        assert all(map(math.isfinite, found)), (criterion, row, found)
