"""The optimizers in fairseq's trainer: which matrix has its own group, and that all else is
fairseq's Adam."""

import copy

import pytest
import torch
from fairseq.optim.adam import Adam
from omegaconf import OmegaConf

from tests.commands import one_line
from tests.small_trainings import F2_LM, FAMILIES, LM, MT, batches, build_trainer

COUPLED = "--optimizer coupled_adam --adam-betas (0.9,0.98) --weight-decay 0.1"


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("base", "options", "name"),
    [
        (LM, "", "decoder.output_projection.weight"),
        (MT, "--share-all-embeddings", "encoder.embed_tokens.weight"),
        (FAMILIES["lstm_lm"], "", "decoder.fc_out.weight"),
        (FAMILIES["lstm_lm, tied"], "", "decoder.embed_tokens.weight"),
        (F2_LM, "--criterion f2_softmax", "decoder.output_projection.weight"),
    ],
    ids=["untied", "translation", "lstm", "tied lstm", "f2"],
)
def test_couples_the_output_embedding_alone(data_for, base, options, name):
    trainer = build_trainer(data_for(base), COUPLED, options, base=base)
    trainer.train_step(batches(trainer)[:1])
    optimizer = trainer.optimizer.optimizer
    rest, coupled = optimizer.param_groups
    assert (rest["coupled"], coupled["coupled"]) == (False, True)
    [found] = coupled["params"]
    weight = dict(trainer.model.named_parameters())[name]
    assert found.equal(weight)
    assert optimizer.state[found]["exp_avg_sq"].shape == weight.shape[1:]
    assert len(rest["params"]) + 1 == len(list(trainer.model.parameters()))
    assert rest["lr"] == coupled["lr"] == trainer.get_lr()


def test_where_they_would_train_as_adam_does_they_are_refused(lm_data):
    for base, options, words in (
        (LM, "--use-bmuf --criterion cross_entropy", "found --use-bmuf"),
        (FAMILIES["fconv_lm"], "", "whose output embedding is computed"),
    ):
        assert words in one_line(build_trainer, lm_data, COUPLED, options, base=base)
    trainer = build_trainer(lm_data)
    groups = {"own": {"optimizer": {"_name": "coupled_adam"}}}
    trainer.cfg.optimizer = OmegaConf.create({"_name": "composite", "groups": groups})
    error = one_line(trainer._build_optimizer)
    assert "found coupled_adam in its group own" in error


def test_everything_else_is_the_adam_of_fairseq(lm_data):
    """Runs fairseq's Adam on a copy, with the gradients that the trainer leaves."""
    options = "--criterion agg --agg-rare-fraction 0.4 --clip-norm 0.1"
    schedule = "--lr-scheduler inverse_sqrt --warmup-updates 3"
    trainer = build_trainer(lm_data, COUPLED, options, schedule)
    model, copied = trainer.model, copy.deepcopy(trainer.model)
    adam = Adam(copied.parameters(), betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
    for batch in batches(trainer)[:5]:
        adam.param_groups[0]["lr"] = trainer.get_lr()
        trainer.train_step([batch])
        for found, parameter in zip(model.parameters(), copied.parameters(), strict=True):
            parameter.grad = found.grad
        adam.step()
    for (name, found), expected in zip(model.named_parameters(), copied.parameters(), strict=True):
        assert torch.equal(found, expected) == (name != "decoder.output_projection.weight")


def test_options_reach_the_groups(lm_data):
    """--optimizer adam_l2 is torch's Adam."""
    options = "--adam-betas (0.9,0.98) --adam-eps 1e-6 --weight-decay 0.1 --optimizer"
    expected = dict(lr=0.01, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1)
    for name in ("adam_l2", "embedding_adam --embedding-beta2 0.9"):
        optimizer = build_trainer(lm_data, f"{options} {name}").optimizer.optimizer
        first, *own = optimizer.param_groups
        assert first.items() >= expected.items()
        if own:
            assert own[0].items() >= (expected | {"betas": (0.9, 0.9)}).items()
            assert own[0]["params"][0].shape == (64, 16)
        else:
            assert type(optimizer) is torch.optim.Adam and not first["amsgrad"]
