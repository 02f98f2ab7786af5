"""Random combinations of criterion, options, optimizer and model: each trains, or is refused in one line.

The draws are seeded, so that a failure can be repeated. A combination with a value out of its range has to be refused.
"""

import math
import random

import pytest
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.data import iterators

from tests.small_trainings import AWD, F2_LM, F2_MT, FAMILIES, LM, trainer_for

F2_MODELS = {"transformer_lm_f2": F2_LM, "transformer_f2": F2_MT}
MODELS = {**FAMILIES, "awd_lstm_lm": AWD, "adaptive softmax": (*LM, "--adaptive-softmax-cutoff", "20,40")}

# Values of each option that are in its range, and values that are not.
WEIGHTS = (("0", "1e-4", "0.1", "1", "10"), ("-1", "nan", "inf"))
TERMS = {
    "--label-smoothing": (("0", "0.1", "0.9"), ("1", "-0.1", "nan")),
    "--cosreg-gamma": WEIGHTS,
    "--mu-loss": WEIGHTS,
    "--embedding-stats-interval": (("1", "2", "1000"), ("-1",)),
}
POSITION_TERMS = {"--ul-alpha": WEIGHTS, "--z-loss": WEIGHTS, "--adv-epsilon": WEIGHTS}
FRACTIONS = (("1e-6", "0.02", "0.3", "0.99"), ("0", "1", "-0.5", "nan"))
UPDATES = (("0", "1", "2", "100"), ("-1",))
CRITERIONS = {
    "mle": {},
    "face": {},
    "cosreg": {},
    "unlikelihood": {},
    "agg": {
        "--agg-alpha": FRACTIONS,
        "--agg-rare-fraction": FRACTIONS,
        "--agg-window": UPDATES,
        "--agg-gates": (("g1", "g2", "both", "faded"), ()),
        "--agg-static-after-epoch": UPDATES,
    },
    "agps": {
        "--agps-rare-rank": (("0", "5", "20"), ("-1", "25000")),
        "--agps-mu1": (("0.5", "10", "500"), ("0", "-1", "nan")),
        "--agps-mu2": (("0.5", "10", "500"), ("0", "-1", "nan")),
        "--agps-variant": (("eq15", "algorithm1"), ()),
    },
    "freeze_rare": {
        "--freeze-parts": (("all", "b", "c", "bc"), ()),
        "--freeze-fraction": FRACTIONS,
        "--freeze-below": FRACTIONS,
        "--freeze-until": UPDATES,
    },
    "unlikelihood_sequence": {
        "--ul-sequence-rate": (("0", "0.5", "1"), ("-0.1", "1.1", "nan")),
        "--ul-ngram": (("1", "2", "4"), ("0", "-1")),
        "--ul-prefix-length": (("1", "3", "5"), ("0", "-1")),
        "--ul-completion-length": (("1", "4", "9"), ("0", "-1")),
    },
    "f2_softmax": {},
}
# Their defaults are for the paper's vocabulary and lengths.
SET_ALWAYS = {
    "agps": {"--agps-rare-rank"}, "unlikelihood_sequence": {"--ul-prefix-length", "--ul-completion-length"},
}  # fmt: skip
OPTIMIZERS = {
    **{name: () for name in ("adam", "sgd", "nag", "adagrad", "adadelta", "adamax", "adafactor")},
    **{name: (("--weight-decay", "0"), ("--weight-decay", "0.1")) for name in ("coupled_adam", "adam_l2")},
    "nt_asgd": (("--asgd-patience", "0"), ("--asgd-patience", "5"), ("--weight-decay", "0.1")),
}
TRAINING = (
    ("--clip-norm", "0.1"), ("--clip-norm", "25"), ("--sentence-avg",), ("--dropout", "0.3"),
    ("--lr-scheduler", "inverse_sqrt", "--warmup-updates", "2"), ("--lr-scheduler", "reduce_lr_on_plateau"),
    ("--share-decoder-input-output-embed",), ("--max-tokens", "32"), ("--batch-size", "1"),
    ("--checkpoint-activations",), ("--lr", "0.1"), ("--lr", "0"),
)  # fmt: skip
OF_TRANSFORMERS = ("--checkpoint-activations", "--share-decoder-input-output-embed")
TRANSFORMERS = ("transformer_lm", "transformer_lm_unigram", "transformer", "transformer_align", *F2_MODELS)


def drawn(generator):
    """Model, options, updates per step, and whether a value of an option is out of its range."""
    criterion = generator.choice(list(CRITERIONS))
    fits = F2_MODELS if criterion == "f2_softmax" else MODELS
    if generator.random() < 0.05:  # also models that do not fit
        fits = {**MODELS, **F2_MODELS}
    model = generator.choice([name for name in fits if criterion != "unlikelihood_sequence" or "_lm" in name])
    base = fits[model]
    options = ["--criterion", criterion]
    ranges = {**TERMS, **CRITERIONS[criterion], **({} if criterion == "f2_softmax" else POSITION_TERMS)}
    chosen = {name for name in ranges if generator.random() < (0.5 if name in CRITERIONS[criterion] else 0.2)}
    if {"--agg-alpha", "--agg-rare-fraction"} <= chosen:  # refused together
        chosen.remove("--agg-alpha")
    chosen |= SET_ALWAYS.get(criterion, set())
    bad = generator.choice(sorted(chosen)) if chosen and generator.random() < 0.1 else None
    bad = bad if bad is not None and ranges[bad][1] else None
    for name in sorted(chosen):
        options.append(f"{name}={generator.choice(ranges[name][name == bad])}")
    if generator.random() < 0.2:
        options.append("--center-output")
    if criterion == "agg" and generator.random() < 0.2:
        options.append("--agg-count-current-batch")
    optimizer = generator.choice(list(OPTIMIZERS))
    options += ["--optimizer", optimizer]
    if OPTIMIZERS[optimizer]:
        options += generator.choice(OPTIMIZERS[optimizer])
    for more in generator.sample(TRAINING, generator.randint(0, 2)):
        is_known = model in TRANSFORMERS if more[0] in OF_TRANSFORMERS else True
        if is_known and (more[0] != "--dropout" or model != "awd_lstm_lm"):  # which has five options for it
            options += more
    update_freq = generator.choice([1, 1, 2, 3])
    return model, base, [*options, "--update-freq", str(update_freq)], update_freq, bad is not None


def trained(data, base, options, update_freq):
    """Two updates and a validation, which has to be that of fairseq's cross_entropy: the losses of the updates."""
    trainer, iterator = trainer_for(data, *options, base=base)
    groups = iterators.GroupedIterator(iterator.next_epoch_itr(shuffle=False), update_freq)
    losses = [trainer.train_step(next(groups))["loss"] for _ in range(2)]
    sample = next(groups)[0]
    trainer.begin_valid_epoch(1)
    found = trainer.valid_step(sample)["nll_loss"]
    if "awd_lstm_lm" not in base:  # whose states have gone on
        trainer._criterion, trainer._wrapped_criterion = CrossEntropyCriterion(trainer.task, False), None
        expected = trainer.valid_step(sample)["loss"]
        assert found == pytest.approx(expected, rel=1e-3, abs=2e-3)
    return losses


def outcome(data, base, options, update_freq, capsys):
    """The losses of a combination that trains, or the line in which it is refused."""
    capsys.readouterr()
    try:
        return trained(data, base, options, update_freq), None
    except SystemExit as stop:
        error = capsys.readouterr().err
        assert stop.code == 2 and error.count("\n") == 1 and error.startswith("agg-fairseq: error: "), error
        return None, error.strip()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_combination_trains_or_is_refused_in_one_line(seed, lm_data, mt_data, capsys):
    """25 of them for each seed."""
    generator, refused, count = random.Random(seed), [], 25
    for _ in range(count):
        model, base, options, update_freq, is_bad = drawn(generator)
        data = mt_data if "translation" in base else lm_data
        try:
            losses, error = outcome(data, base, options, update_freq, capsys)
        except Exception as broken:
            raise AssertionError(f"{model}: {' '.join(options)}") from broken
        assert error is not None or not is_bad, (model, options)
        assert error is not None or all(map(math.isfinite, losses)), (model, options, losses)
        refused += [f"{model}: {error}"] if error else []
    with capsys.disabled():
        print(f"\nseed {seed}: {count - len(refused)} trained, {len(refused)} refused", *refused, sep="\n  ")
    assert len(refused) < count / 2
