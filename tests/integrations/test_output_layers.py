"""F²-Softmax and a fixed log-unigram bias as the output layer; `test_huggingface_page.py` saves and loads the first."""

import io
import logging

import pytest
import torch
import torch.nn.functional as F

from tests.small_transformers import VOCABULARY, batch, dataset, gpt2, llama_like

pytest.importorskip("transformers", reason="needs transformers 5: pip install '.[transformers]'")

from agg_fairseq.errors import UserError
from agg_fairseq.f2 import mefmax
from agg_fairseq.f2.transformers_head import factorize_head, load_factorized
from agg_fairseq.functional import log_unigram
from agg_fairseq.integrations import label_counts, load_pretrained
from agg_fairseq.integrations.transformers import GatedLoss


def classes():
    return mefmax(label_counts(dataset(), VOCABULARY) + 1)


@pytest.mark.parametrize("make", [gpt2, lambda: llama_like("Llama", tie_word_embeddings=False)], ids=["tied", "untied"])
def test_trains_with_the_gradients_of_the_joint_log_probabilities(make):
    model, given = make(), batch(ignored=[(1, 4)])
    layer = factorize_head(model, classes())
    logits = model(input_ids=given["input_ids"]).logits
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(3, 12))
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), given["labels"][:, 1:].flatten())
    expected.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    GatedLoss(model, "mle")
    found = model(**given).loss
    found.backward()
    torch.testing.assert_close(found, expected)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-5, atol=1e-6, msg=name)
    assert layer.class_weight.grad.abs().sum() > 0
    model.eval()
    torch.testing.assert_close(model(**given).loss, expected)


def test_output_layers_that_are_refused(tmp_path):
    with pytest.raises(UserError, match="found classes of 3 tokens; expected 61"):
        factorize_head(gpt2(), torch.tensor([0, 1, 1]))
    with pytest.raises(UserError, match="found one with a bias"):
        factorize_head(llama_like("Phi", head_dim="default"), classes())
    model = gpt2()
    model.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="found no factorized output layer"):
        load_factorized(type(model), tmp_path)
    with pytest.raises(UserError, match="cannot read"):
        load_factorized(type(model), tmp_path / "missing")
    factorize_head(model, classes())
    with pytest.raises(ValueError, match="is trained with method='mle'"):
        GatedLoss(model, agg_rare_fraction=0.2)


def reported(load, *arguments):
    """The model, and what transformers logs meanwhile."""
    logger, stream = logging.getLogger("transformers"), io.StringIO()
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    try:
        return load(*arguments), stream.getvalue()
    finally:
        logger.removeHandler(handler)


def test_what_is_loaded_is_not_reported_and_all_else_is(tmp_path):
    model = gpt2()
    factorize_head(model, classes())
    model.save_pretrained(tmp_path / "factorized")
    assert reported(load_factorized, type(model), tmp_path / "factorized")[1] == ""
    model = gpt2()
    model.lm_head.bias = torch.nn.Parameter(torch.zeros(VOCABULARY))
    model.transformer.extra = torch.nn.Linear(2, 2, bias=False)
    model.save_pretrained(tmp_path / "bias")
    report = reported(load_pretrained, type(model), tmp_path / "bias")[1]
    assert "transformer.extra.weight | UNEXPECTED" in report and "lm_head.bias" not in report


@pytest.mark.parametrize("kind", ["GPT-2", "Phi"])
def test_log_unigram_trained_saved_and_loaded(kind, tmp_path):
    """The head of Phi has a bias, so that transformers loads it alone; that of GPT-2 has none."""
    model = gpt2() if kind == "GPT-2" else llama_like("Phi", head_dim="default")
    counts = label_counts(dataset(), VOCABULARY)
    gated = GatedLoss(model, agg_rare_fraction=0.3, log_unigram=counts)
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)
    for seed in range(2):
        model(**batch(seed=seed)).loss.backward()
        optimizer.step()
        gated.commit_update()
    bias = model.lm_head.bias
    assert bias.equal(log_unigram(counts)) and bias.grad is None
    model.eval()
    given = batch()
    features = model.base_model(input_ids=given["input_ids"]).last_hidden_state
    logits = F.linear(features, model.lm_head.weight, bias)
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), given["labels"][:, 1:].flatten())
    for mode in (True, False):
        torch.testing.assert_close(model.train(mode)(**given).loss, expected)
    model.save_pretrained(tmp_path)
    plain = type(model).from_pretrained(tmp_path)
    assert (plain.lm_head.bias is not None) is (kind == "Phi")
    loaded, report = reported(load_pretrained, type(model), tmp_path)
    assert report == ""
    assert loaded(**given).logits.equal(model(**given).logits)
    assert not loaded.lm_head.bias.requires_grad or kind == "Phi"


def test_log_unigram_refused():
    for counts, found in ((torch.ones(3), "shape (3,)"), (-torch.ones(VOCABULARY), "-1 among them")):
        with pytest.raises(ValueError) as error:
            GatedLoss(gpt2(), log_unigram=counts)
        assert str(error.value) == f"log_unigram: expected the counts of 61 tokens, got {found}"
    model = llama_like("Granite", logits_scaling=4.0, head_dim="default")
    GatedLoss(model, log_unigram=torch.ones(VOCABULARY))
    with pytest.raises(UserError, match="GraniteForCausalLM changes its logits; expected no log_unigram"):
        model(**batch())
    model = gpt2()
    factorize_head(model, torch.arange(VOCABULARY) % 3)
    with pytest.raises(ValueError, match="found log_unigram with a factorized output layer"):
        GatedLoss(model, "mle", log_unigram=torch.ones(VOCABULARY))
