"""Models with a log-unigram bias inside fairseq's own task and trainer."""

import pytest
import torch

from agg_fairseq.functional import log_unigram
from agg_fairseq.modules import UnigramLinear
from tests.small_trainings import LM, MT, batches, build, target_counts

UNIGRAM_LM = [*LM, "--arch", "transformer_lm_unigram"]
UNIGRAM_MT = [*MT, "--arch", "transformer_unigram_tiny"]


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
