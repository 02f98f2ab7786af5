"""The optimizers in fairseq's trainer: which matrix has its own group, and that all else is
fairseq's Adam."""

import copy

import pytest
import torch
from fairseq.optim.adam import Adam
from omegaconf import OmegaConf

from tests.commands import one_line
from tests.small_trainings import F2_LM, FAMILIES, LM, MT, batches, build_trainer

COUPLED = ("--optimizer", "coupled_adam", "--adam-betas", "(0.9, 0.98)", "--weight-decay", 0.1)


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("base", "options", "name"),
    [
        (LM, (), "decoder.output_projection.weight"),
        (MT, ("--share-all-embeddings",), "encoder.embed_tokens.weight"),
        (FAMILIES["lstm_lm"], (), "decoder.fc_out.weight"),
        (FAMILIES["lstm_lm, tied"], (), "decoder.embed_tokens.weight"),
        (F2_LM, ("--criterion", "f2_softmax"), "decoder.output_projection.weight"),
    ],
    ids=["untied", "translation", "lstm", "tied lstm", "f2"],
)
def test_couples_the_output_embedding_alone(lm_data, mt_data, base, options, name):
    data = mt_data if base is MT else lm_data
    trainer, _ = build_trainer(data, *COUPLED, "--criterion", "mle", *options, base=base)
    trainer.train_step(batches(trainer.cfg, trainer.task)[:1])
    optimizer = trainer.optimizer.optimizer
    rest, coupled = optimizer.param_groups
    assert (rest["coupled"], coupled["coupled"]) == (False, True)
    [found] = coupled["params"]
    weight = dict(trainer.model.named_parameters())[name]
    assert torch.equal(found, weight)
    assert optimizer.state[found]["exp_avg_sq"].shape == weight.shape[1:]
    assert len(rest["params"]) + 1 == len(list(trainer.model.parameters()))
    assert rest["lr"] == coupled["lr"] == trainer.get_lr()


def test_embedding_adam_has_another_beta2(lm_data):
    trainer, _ = build_trainer(
        lm_data, "--optimizer", "embedding_adam", "--embedding-beta2", 0.9, "--criterion", "mle"
    )
    rest, own = trainer.optimizer.optimizer.param_groups
    assert [group["betas"][1] for group in (rest, own)] == [0.999, 0.9]
    assert own["params"][0].shape == (64, 16)


def test_where_they_would_train_as_adam_does_they_are_refused(lm_data, capsys):
    """A W that weight normalization computes; a group of fairseq's composite optimizer."""
    options = (*COUPLED, "--use-bmuf", "--criterion", "cross_entropy")
    assert "found --use-bmuf" in one_line(capsys, build_trainer, lm_data, *options)
    options, base = (*COUPLED, "--criterion", "mle"), FAMILIES["fconv_lm"]
    error = one_line(capsys, build_trainer, lm_data, *options, base=base)
    assert "whose output embedding is computed" in error
    trainer, _ = build_trainer(lm_data, "--criterion", "mle")
    groups = {"own": {"optimizer": {"_name": "coupled_adam"}}}
    trainer.cfg.optimizer = OmegaConf.create({"_name": "composite", "groups": groups})
    error = one_line(capsys, trainer._build_optimizer)
    assert "found coupled_adam in its group own" in error


def test_everything_else_is_the_adam_of_fairseq(lm_data):
    """Runs fairseq's Adam on a copy, with the gradients that the trainer leaves."""
    options = ("--criterion", "agg", "--agg-rare-fraction", 0.4, "--clip-norm", 0.1)
    schedule = ("--lr-scheduler", "inverse_sqrt", "--warmup-updates", 3)
    trainer, _ = build_trainer(lm_data, *COUPLED, *options, *schedule)
    model, copied = trainer.model, copy.deepcopy(trainer.model)
    adam = Adam(copied.parameters(), betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
    for batch in batches(trainer.cfg, trainer.task)[:5]:
        adam.param_groups[0]["lr"] = trainer.get_lr()
        trainer.train_step([batch])
        for found, parameter in zip(model.parameters(), copied.parameters(), strict=True):
            parameter.grad = found.grad
        adam.step()
    for (name, found), expected in zip(model.named_parameters(), copied.parameters(), strict=True):
        assert torch.equal(found, expected) == (name != "decoder.output_projection.weight")


def test_adam_l2_is_the_adam_of_torch(lm_data):
    options = ("--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6, "--weight-decay", 0.1)
    trainer, _ = build_trainer(lm_data, "--optimizer", "adam_l2", *options, "--criterion", "mle")
    optimizer = trainer.optimizer.optimizer
    assert type(optimizer) is torch.optim.Adam
    expected = dict(lr=0.01, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1, amsgrad=False)
    assert all(group.items() >= expected.items() for group in optimizer.param_groups)
