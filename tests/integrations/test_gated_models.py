"""Models, losses and options that GatedHead refuses, and what it warns of."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from transformers import GPT2LMHeadModel
from transformers.modeling_outputs import CausalLMOutput

from agg_fairseq.errors import UserError
from agg_fairseq.gating import AggGating
from agg_fairseq.integrations.transformers import GatedHead
from tests.small_transformers import VOCABULARY, batch, gated_head, gpt2, untied, word_tokenizer


class Fused(GPT2LMHeadModel):
    """Its loss does not call the output layer, as Liger's."""

    def forward(self, input_ids, labels):
        logits = self.transformer(input_ids).last_hidden_state @ self.lm_head.weight.t()
        return CausalLMOutput(self.loss_function(logits, labels, VOCABULARY), logits)


class Aligned(GPT2LMHeadModel):
    """Position t predicts label t, which its base does not do."""

    def forward(self, input_ids, labels):
        logits = self.lm_head(self.transformer(input_ids).last_hidden_state)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return CausalLMOutput(loss, logits)


def checkpoint_head(model, use_reentrant):
    forward = model.lm_head.forward
    model.lm_head.forward = lambda features: checkpoint(
        forward, features, use_reentrant=use_reentrant
    )


def fake_quantized():
    """As in a training for quantization: it multiplies by a rounded W."""
    layer = nn.Linear(16, VOCABULARY, bias=False)
    layer.qconfig = torch.ao.quantization.get_default_qat_qconfig()
    return torch.ao.nn.qat.Linear.from_float(layer)


def quantized():
    model = nn.Sequential(nn.Linear(16, VOCABULARY, bias=False))
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear})[0]


def build_model(kind):
    model = gpt2()
    model.__class__ = kind
    return model


def double_heads():
    model = gpt2()
    return transformers.GPT2DoubleHeadsModel(model.config).train()


@pytest.mark.parametrize(
    ("make", "change", "more", "message"),
    [
        (lambda: build_model(Fused), None, {}, "has not called its output layer"),
        (lambda: build_model(Aligned), None, {}, r"predicts label t; expected t \+ 1"),
        (double_heads, None, {}, r"predicts label t \+ 1; expected t"),
        (untied, None, {"logits_to_keep": 4}, r"positions \(3, 4\) for the labels \(3, 12\)"),
        (untied, lambda model: model.lm_head.requires_grad_(False), {}, "does not train"),
        (untied, lambda model: parametrizations.spectral_norm(model.lm_head), {}, "changes each time that it is read"),
        (untied, lambda model: checkpoint_head(model, use_reentrant=False), {}, "calls it in torch's checkpoint"),
        (untied, lambda model: checkpoint_head(model, use_reentrant=True), {}, "calls it in torch's checkpoint"),
        (untied, lambda model: setattr(model, "lm_head", fake_quantized()), {}, "or by another weight"),
        (untied, lambda model: setattr(model, "lm_head", quantized()), {}, "found torch.ao.nn.quantized.dynamic"),
        (untied, lambda model: model.resize_token_embeddings(64), {}, "found 64 rows in the output"),
    ],
)  # fmt: skip
def test_refused_in_the_first_step(make, change, more, message):
    model = make()
    gated = gated_head(model)
    if change is not None:
        change(model)
    with pytest.raises(UserError, match=message):
        model(**batch(), **more).loss.backward()
    gated.remove()
    assert model(**batch()).loss.isfinite()


def test_workers_with_the_same_batch_are_asked_for(monkeypatch):
    """As those of a tensor-parallel model, whose counts would be summed."""
    model = untied()
    gated = gated_head(model)
    model.model.embed_tokens.weight.device_mesh = "tp"
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(UserError, match="expected process_group of the rule"):
        model(**batch())
    gated.gating.process_group = "dp"
    model(**batch())


def test_labels_that_do_not_tell_the_alignment_do_not_decide_it():
    """No label at all, and a loss without labels; then a run of one token, of which the end tells."""
    model, given = build_model(Aligned), batch()
    gated_head(model)
    same = torch.full_like(given["labels"], 3)
    model(given["input_ids"], torch.full_like(same, -100)).logits.logsumexp(-1).sum().backward()
    with pytest.raises(UserError, match=r"predicts label t; expected t \+ 1"):
        model(given["input_ids"], same).loss.backward()
    model = gpt2()
    gated_head(model)
    log_probs = model(**given).logits.log_softmax(-1)
    (log_probs.exp() * log_probs).sum().backward()  # an entropy, of no label
    model(**given).loss.backward()


def test_an_update_has_one_step_and_an_end(caplog):
    """A second step of the optimizer is refused, also without a callback; a large β₂ is told once."""
    model = gpt2()
    gated = gated_head(model)
    with pytest.raises(UserError, match="found no step of the model with labels"):
        gated.commit_update()
    others = torch.optim.AdamW(gpt2().parameters())
    for beta2, told in ((0.99, 0), (None, 0), (0.999, 1), (0.999, 1)):
        if beta2 is None:
            optimizer = torch.optim.SGD([{"params": model.parameters(), "betas": None}], 0.01)
        else:
            optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, beta2))
        for _ in range(2):
            model(**batch()).loss.backward()
            others.step()
        optimizer.step()
        with pytest.raises(UserError, match="the update has not ended"):
            model(**batch())
        gated.commit_update()
        assert caplog.text.count("found β₂ = 0.999 for the output embedding") == told


def test_options_that_are_refused():
    model = gpt2()
    with pytest.raises(UserError, match="found the slow tokenizer SimpleNamespace"):
        gated_head(model, tokenizer=SimpleNamespace())
    with pytest.raises(UserError, match="found 61 rows in the output embedding, expected 7"):
        GatedHead(model, AggGating(7))
    model.lm_head = nn.Sequential(nn.Linear(16, VOCABULARY))
    with pytest.raises(
        UserError, match="GPT2LMHeadModel to end in an nn.Linear, found torch.*Sequential"
    ):
        gated_head(model)


def test_a_tokenizer_says_what_is_excluded():
    """Its special and reserved tokens and the rows without a token: of 61 rows, 8 have tokens, 2 of
    them ordinary. A processor has one."""
    tokens = [
        "<s>", "the", "[unused3]", "sea", "<|reserved_special_token_7|>", "<unk>", "<0xC0>",
        "<mine>",
    ]  # fmt: skip
    special = {"bos_token": "<s>", "unk_token": "<unk>", "extra_special_tokens": ["<mine>"]}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(tokens), **special
    )
    processor = SimpleNamespace(tokenizer=tokenizer)
    for given, more, expected in (
        (tokenizer, {}, [1, 3]),
        (processor, {}, [1, 3]),
        (tokenizer, {"excluded": torch.arange(VOCABULARY) == 3}, [1]),
    ):
        gated = gated_head(gpt2(), tokenizer=given, **more)
        assert (~gated.gating.excluded).nonzero().flatten().tolist() == expected
    with pytest.raises(UserError, match="found the token 7 beyond the 7 rows"):
        gated_head(gpt2(vocab_size=7), tokenizer=tokenizer)
