"""Models with a log-unigram bias inside fairseq's own task and trainer."""

import copy

import pytest
import torch

from agg_fairseq.functional import log_unigram
from agg_fairseq.modules import UnigramLinear
from tests.small_trainings import LM, MT, batches, build, configuration, target_counts, trainer_for

UNIGRAM_LM = [*LM, "--arch", "transformer_lm_unigram"]
UNIGRAM_MT = [*MT, "--arch", "transformer_unigram_tiny"]
LAYER = "decoder.output_projection"
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


@pytest.mark.parametrize(
    ("base", "options"),
    [(UNIGRAM_LM, ("--unigram-bias", "fixed")), (UNIGRAM_MT, ("--unigram-bias", "learned", "--share-all-embeddings"))],
    ids=["lm", "mt"],
)
def test_the_bias_is_that_of_the_target_side_and_logits_include_it(lm_data, mt_data, base, options):
    """Without W, the model predicts the training frequencies."""
    data = lm_data if base is UNIGRAM_LM else mt_data
    cfg, task, model, _ = build(data, *options, base=base)
    layer = model.decoder.output_projection
    counts = target_counts(data, task.target_dictionary)
    assert isinstance(layer, UnigramLinear) and torch.equal(layer.counts, counts)
    assert (layer.bias_shift is None) == ("fixed" in options)
    batch = batches(cfg, task)[0]
    features = model(**batch["net_input"], features_only=True)[0]
    torch.testing.assert_close(model(**batch["net_input"])[0], features @ layer.weight.T + log_unigram(counts))
    with torch.no_grad():
        layer.weight.zero_()
        probabilities = model.get_normalized_probs(model(**batch["net_input"]), log_probs=False)
    expected = (counts + 1.0) / (counts.sum() + len(counts))
    torch.testing.assert_close(probabilities, expected.expand_as(probabilities))


@pytest.mark.grid(2)
@pytest.mark.parametrize("name", CRITERIONS)
def test_every_criterion_trains_with_the_bias(lm_data, name):
    """Some updates; the likelihood of validation is that of fairseq's cross-entropy on the model's own logits."""
    kind = "fixed" if name in ("cosreg", "agps") else "learned"
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
