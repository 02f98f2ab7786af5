"""Models with a log-unigram bias inside fairseq's own task, trainer and generator."""

import argparse
import copy

import pytest
import torch
from fairseq import tasks
from fairseq.benchmark import dummy_lm  # noqa: F401 — registers its task
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY, ARCH_MODEL_REGISTRY

from agg_fairseq.functional import log_unigram
from agg_fairseq.models.transformer_unigram import add_log_unigram
from agg_fairseq.modules import UnigramLinear
from tests.glue.test_f2_models import target_counts
from tests.small_trainings import LM, MT, batches, build, configuration, trainer_for

UNIGRAM_LM = [*LM, "--arch", "transformer_lm_unigram"]
UNIGRAM_MT = [*MT, "--arch", "transformer_unigram_tiny"]
LAYER = "decoder.output_projection"


@pytest.fixture
def data_of(lm_data, mt_data):
    return lambda base: lm_data if "language_modeling" in base else mt_data


@pytest.mark.parametrize("parent", ["transformer_lm", "transformer"])
def test_every_architecture_of_the_parent_has_its_sizes(parent):
    names = [name for name in ARCH_MODEL_INV_REGISTRY[parent] if name.startswith(parent)]
    assert len(names) >= 8
    for name in names:
        ours = f"{parent}_unigram{name.removeprefix(parent)}"
        assert ARCH_MODEL_REGISTRY[ours] is ARCH_MODEL_REGISTRY[f"{parent}_unigram"], ours
        expected, found = argparse.Namespace(), argparse.Namespace()
        ARCH_CONFIG_REGISTRY[name](expected)
        ARCH_CONFIG_REGISTRY[ours](found)
        different = {key for key, value in vars(expected).items() if getattr(found, key) != value}
        assert different <= {"adaptive_softmax_cutoff", "tie_adaptive_weights", "tie_adaptive_proj"}, ours


@pytest.mark.grid(1)
@pytest.mark.parametrize("kind", ["learned", "fixed"])
@pytest.mark.parametrize(
    "base, options",
    [
        (UNIGRAM_LM, ()),
        (UNIGRAM_LM, ("--share-decoder-input-output-embed",)),
        (UNIGRAM_MT, ()),
        (UNIGRAM_MT, ("--share-all-embeddings",)),
    ],
    ids=["lm", "lm tied", "mt", "mt all tied"],
)
def test_the_bias_is_that_of_the_target_side_and_logits_include_it(data_of, base, options, kind):
    """W is what fairseq's builder made it, tied or not; without W, the model predicts the training frequencies."""
    data = data_of(base)
    cfg, task, model, _ = build(data, "--unigram-bias", kind, *options, base=base)
    layer = model.decoder.output_projection
    counts = target_counts(data, task.target_dictionary)
    assert isinstance(layer, UnigramLinear) and torch.equal(layer.counts, counts)
    assert (layer.weight is model.decoder.embed_tokens.weight) == bool(options)
    assert (layer.bias_shift is None) == (kind == "fixed")
    batch = batches(cfg, task)[0]
    features = model(**batch["net_input"], features_only=True)[0]
    torch.testing.assert_close(model(**batch["net_input"])[0], features @ layer.weight.T + log_unigram(counts))
    with torch.no_grad():
        layer.weight.zero_()
        probabilities = model.get_normalized_probs(model(**batch["net_input"]), log_probs=False)
    expected = (counts + 1.0) / (counts.sum() + len(counts))
    torch.testing.assert_close(probabilities, expected.expand_as(probabilities))


CRITERIONS = {
    "mle": (),
    "agg": ("--agg-rare-fraction", 0.3),
    "agps": ("--agps-rare-rank", 30),
    "cosreg": (),
    "freeze_rare": ("--freeze-parts", "bc"),
    "face": (),
    "unlikelihood": (),
    "unlikelihood_sequence": ("--ul-prefix-length", 6, "--ul-completion-length", 4),
}


@pytest.mark.grid(1)
@pytest.mark.parametrize("kind", ["learned", "fixed"])
@pytest.mark.parametrize("name", CRITERIONS)
def test_every_criterion_trains_with_the_bias(lm_data, name, kind):
    """Some updates; the likelihood of validation is that of fairseq's cross-entropy on the model's own logits."""
    options = ("--criterion", name, *CRITERIONS[name], "--unigram-bias", kind, "--weight-decay", 0.1)
    trainer, _ = trainer_for(lm_data, *options, base=UNIGRAM_LM)
    data = batches(trainer.cfg, trainer.task)
    start = copy.deepcopy(trainer.model.state_dict())
    for first in range(0, 6, 2):
        trainer.train_step(data[first : first + 2])
    state = trainer.model.state_dict()
    assert all(value.isfinite().all() for value in state.values())
    assert not torch.equal(state[f"{LAYER}.weight"], start[f"{LAYER}.weight"])
    assert torch.equal(state[f"{LAYER}.counts"], start[f"{LAYER}.counts"])
    if kind == "learned":
        assert state[f"{LAYER}.bias_shift"].any()
    model, batch = trainer.model.eval(), batches(trainer.cfg, trainer.task, "valid")[0]
    with torch.no_grad():
        log = trainer.criterion.eval()(model, batch)[2]
    reference = configuration(lm_data, "--criterion", "cross_entropy", base=UNIGRAM_LM).criterion
    expected = trainer.task.build_criterion(reference)(model, batch)[0]
    assert log["nll_loss"].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.slow
def test_gates_act_on_the_rows_and_not_on_the_bias(lm_data):
    """The gradient of the bias under AGG is the one under plain likelihood."""
    gradients = {}
    for name in ("mle", "agg"):
        cfg, task, model, criterion = build(lm_data, "--criterion", name, *CRITERIONS[name], base=UNIGRAM_LM)
        task.get_batch_iterator(task.dataset("train"), max_tokens=64)  # the length of an epoch
        for update, batch in enumerate(batches(cfg, task)[:2]):
            criterion.begin_update(update)
            loss = criterion(model, batch)[0]
        layer = model.decoder.output_projection
        gradients[name] = torch.autograd.grad(loss, (layer.weight, layer.bias_shift))
    torch.testing.assert_close(gradients["agg"][1], gradients["mle"][1])
    assert not torch.allclose(gradients["agg"][0], gradients["mle"][0])


@pytest.mark.slow
def test_without_training_data_the_bias_is_that_of_the_checkpoint(lm_data, tmp_path, capsys):
    """Such a model can be loaded and evaluated, and not trained."""
    cfg, task, model, _ = build(lm_data, base=UNIGRAM_LM)
    state = model.state_dict()
    for path in lm_data.iterdir():
        if not path.name.startswith("train"):
            (tmp_path / path.name).symlink_to(path)
    cfg.task.data = str(tmp_path)
    other = tasks.setup_task(cfg.task)
    loaded = other.build_model(cfg.model)
    inputs = batches(cfg, task)[0]["net_input"]
    with pytest.raises(SystemExit):
        loaded.train()(**inputs)
    assert "the log-unigram bias could not be made:" in capsys.readouterr().err
    loaded.load_state_dict(state, model_cfg=cfg.model)
    torch.testing.assert_close(loaded.eval()(**inputs)[0], model.eval()(**inputs)[0])
    loaded.train()(**inputs)  # a fine-tuning


@pytest.mark.slow
def test_a_task_without_training_data_on_disk_is_refused_at_the_first_step(lm_data, capsys):
    task = argparse.Namespace(target_dictionary=build(lm_data)[1].target_dictionary)
    model = build(lm_data, base=UNIGRAM_LM)[2]
    options = argparse.Namespace(unigram_bias="learned", train_subset="train")
    add_log_unigram(model, options, task)
    with pytest.raises(SystemExit):
        model.train()(torch.tensor([[5, 6]]))
    assert "found the task Namespace, which names no data" in capsys.readouterr().err


@pytest.mark.grid(1)
@pytest.mark.parametrize(
    "base, options, words",
    [
        (LM, (), "without log-unigram bias"),
        (UNIGRAM_LM, ("--unigram-bias", "fixed"), "--unigram-bias learned: found a checkpoint with a fixed bias"),
    ],
    ids=["none", "fixed"],
)
def test_a_checkpoint_with_another_output_layer_is_one_line(lm_data, capsys, base, options, words):
    state = build(lm_data, *options, base=base)[2].state_dict()
    cfg, _, model, _ = build(lm_data, base=UNIGRAM_LM)
    with pytest.raises(SystemExit):
        model.load_state_dict(state, model_cfg=cfg.model)
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_an_adaptive_softmax_is_refused(lm_data, capsys):
    with pytest.raises(SystemExit):
        build(lm_data, "--adaptive-softmax-cutoff", "10,20", base=UNIGRAM_LM)
    assert "the output layer with a log-unigram bias takes its place" in capsys.readouterr().err


def test_fairseq_keeps_a_moving_average_of_it(lm_data):
    trainer, _ = trainer_for(lm_data, "--criterion", "agg", "--store-ema", "--ema-decay", 0.9, base=UNIGRAM_LM)
    for batch in batches(trainer.cfg, trainer.task)[:3]:
        trainer.train_step([batch])
    layer, average = trainer.model.decoder.output_projection, trainer.ema.get_model().decoder.output_projection
    assert torch.equal(average.counts, layer.counts) and not torch.equal(average.bias, layer.bias)
