"""The same batches through a criterion in fairseq's trainer, and through the objective in a loop of
plain PyTorch."""

import copy

import pytest
import torch

from agg_fairseq.data.binarized import excluded_tokens
from agg_fairseq.objective import AggObjective, AgpsObjective, Objective
from tests.small_trainings import TIED, batches, target_counts, trainer_for

WEIGHTS = {"ul_alpha": 0.5, "adv_epsilon": 0.2, "cosreg_gamma": 3.0}
TERMS = [
    part for name, weight in WEIGHTS.items() for part in (f"--{name.replace('_', '-')}", weight)
]
OWN = {
    "agg": ("--agg-rare-fraction", 0.4, "--agg-window", 2),
    "agps": ("--agps-rare-rank", 20, "--agps-mu1", 30, "--agps-mu2", 5),
    "mle": (),
}


@pytest.mark.parametrize("name", OWN)
def test_weights_are_equal(lm_data, name):
    """With every term, after updates of two micro-batches."""
    options = (
        "--optimizer", "sgd", "--lr", 0.5, "--update-freq", 2, TIED, "--label-smoothing", 0.1,
        *TERMS,
    )  # fmt: skip
    trainer, _ = trainer_for(lm_data, "--criterion", name, *OWN[name], *options)
    model, dictionary = copy.deepcopy(trainer.model), trainer.task.target_dictionary
    pad, size = dictionary.pad(), len(dictionary)
    shared = {"label_smoothing": 0.1, "ignore_index": pad, "padding_row": pad, **WEIGHTS}
    shared_by_gates = {"excluded": excluded_tokens(dictionary), **shared}
    objective = {
        "agg": lambda: AggObjective(size, rare_fraction=0.4, window=2, **shared_by_gates),
        "agps": lambda: AgpsObjective(
            size, rare_rank=20, mu1=30, mu2=5, counts=target_counts(lm_data, dictionary),
            **shared_by_gates,
        ),
        "mle": lambda: Objective(size, **shared),
    }[name]()  # fmt: skip
    plain = copy.deepcopy(model)
    optimizer, stream = (
        torch.optim.SGD(model.parameters(), lr=0.5),
        batches(trainer.cfg, trainer.task),
    )
    for update in (stream[:2], stream[2:4], stream[4:6], stream[6:8]):
        trainer.train_step(update)
        optimizer.zero_grad()
        for batch in update:
            features = model(**batch["net_input"], features_only=True)[0]
            output = objective(features, model.decoder.output_projection.weight, batch["target"])
            (output.loss / sum(each["ntokens"] for each in update)).backward()
        optimizer.step()
        objective.commit_update()
    for found, expected, start in zip(
        *(each.parameters() for each in (trainer.model, model, plain)), strict=True
    ):
        torch.testing.assert_close(found, expected)
        assert not torch.equal(found, start)
