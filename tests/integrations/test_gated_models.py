"""What GatedHead leaves of a model: evaluation, copies, hooks, and the model after `remove`; models
and options that are refused."""

import copy
from types import SimpleNamespace

import pytest
import torch
import transformers
from torch import nn
from torch.testing import assert_close
from transformers import GPT2LMHeadModel
from transformers.modeling_outputs import CausalLMOutput

from agg_fairseq.errors import UserError
from agg_fairseq.integrations.transformers import GatedHead
from tests.small_transformers import (
    VOCABULARY,
    batch,
    gpt2,
    gradients,
    in_bfloat16,
    llama_like,
    untied,
    word_tokenizer,
)

SHORT = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}


def test_everything_but_training_steps_is_untouched():
    model, given = gpt2(), batch()
    keys = list(model.state_dict())
    prompt = given["input_ids"][:, :4]
    expected, continued = model.eval()(**given), model.generate(prompt, **SHORT)
    gated = GatedHead(model, rare_fraction=0.3)
    found = model(**given)
    assert found.loss.equal(expected.loss) and found.logits.equal(expected.logits)
    assert model.generate(prompt, **SHORT).equal(continued)
    model.train()
    assert model(input_ids=given["input_ids"]).logits.equal(expected.logits)  # no labels
    with torch.no_grad():
        assert model(**given).loss.equal(expected.loss)
    assert not gated.objective.counter.current.any() and list(model.state_dict()) == keys
    loss, logits = model(**given, return_dict=False)[:2]
    assert loss.requires_grad and logits is None  # nothing that would pass for logits


def test_remove_restores_the_model():
    """Also after a failure, in making a GatedHead or in a training step."""
    model, given = gpt2(), batch()
    expected = gradients(model, model(**given).loss)
    before = model.__dict__.copy(), model.lm_head.__dict__.copy()
    with pytest.raises(ValueError, match="between 0 and 1"):
        GatedHead(model, alpha=1.5)
    gated = GatedHead(model, rare_fraction=0.3)
    with pytest.raises(IndexError):
        model(input_ids=given["input_ids"], labels=torch.full_like(given["labels"], VOCABULARY))
    gated.remove()
    gated.remove()
    output = model(**given)
    assert output.logits.shape == (3, 12, VOCABULARY)
    assert_close(gradients(model, output.loss), expected, rtol=0, atol=0)
    assert (model.__dict__, model.lm_head.__dict__) == before


@pytest.mark.parametrize("in_half", [False, True])
def test_a_copy_has_weights_of_its_own(in_half):
    """In evaluation and training; and a GatedHead of its own, which `remove` takes off again."""
    model, given = gpt2(), batch()
    gated = GatedHead(model, rare_fraction=0.3)
    if in_half:
        in_bfloat16(model)
    made = copy.deepcopy(model)
    with torch.no_grad():
        expected = made.eval()(**given).logits
        model.lm_head.weight.mul_(2)
        assert made(**given).logits.equal(expected)
        assert not model.eval()(**given).logits.equal(expected)
    first = gradients(made, made.train()(**given).loss)
    assert first and not any(parameter.grad is not None for parameter in model.parameters())
    own = GatedHead(made, rare_fraction=0.3)
    with pytest.raises(UserError, match="already has one"):
        GatedHead(made)
    assert made(**given).logits is None and model.train()(**given).logits is None
    for one in (own, gated):
        assert one.objective.counter.current.sum() == 3 * 11
    own.remove()
    output = made(**given)
    assert output.logits is not None and model(**given).logits is None
    assert_close(gradients(made, output.loss), first, rtol=0, atol=0)


def test_hooks_on_the_output_layer_are_told_once(caplog):
    model, shapes = gpt2(), []
    gated = GatedHead(model, "mle")
    model(**batch())
    assert "placeholder" not in caplog.text
    model.lm_head.register_forward_hook(lambda module, given, found: shapes.append(found.shape))
    for _ in range(2):
        model(**batch())
    assert caplog.text.count("get a placeholder of shape (1, 1, V)") == 1
    gated.remove()
    model(**batch())
    assert shapes[0] == (1, 1, VOCABULARY) and shapes[-1] == (3, 12, VOCABULARY)


class Scaled(GPT2LMHeadModel):
    """Its logits have a learned scale."""

    @classmethod
    def made(cls):
        model = gpt2()
        model.__class__, model.scale = cls, nn.Parameter(torch.ones(()))
        return model

    def forward(self, input_ids, labels):
        logits = self.lm_head(self.transformer(input_ids).last_hidden_state) * self.scale
        return CausalLMOutput(loss=self.loss_function(logits, labels, VOCABULARY), logits=logits)


class Shifted(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes, bias=False)
        self.shift = nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, features):
        return super().forward(features) + self.shift


def with_centered_logits():
    model = untied()
    model.lm_head.register_forward_hook(lambda module, given, z: z - z.mean() if z.dim() else None)
    return model


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        (Scaled.made, None, "depend on scale after the output layer"),
        (with_centered_logits, None, "LlamaForCausalLM changes its logits after the output"),
        (
            untied,
            lambda model: setattr(model, "lm_head", Shifted(16, VOCABULARY)),
            "that depends on lm_head.shift beside its weight",
        ),
        (untied, lambda model: model.lm_head.weight.data.fill_(torch.nan), "has NaN or infinite"),
        (untied, lambda model: model.lm_head.requires_grad_(False), "does not train"),
        (
            untied,
            lambda model: model.resize_token_embeddings(VOCABULARY + 3),
            "found 64 rows in the output embedding, expected 61",
        ),
    ],
)
def test_refused_in_each_training_step(make, change, message):
    model = make()
    gated = GatedHead(model, rare_fraction=0.3)
    if change is not None:
        change(model)
    for seed in range(2):
        with pytest.raises(UserError, match=message):
            model(**batch(seed=seed))
    gated.remove()
    assert model(**batch()).loss is not None


def test_a_term_of_the_logits_is_refused():
    """In the backward pass, since its gradient would be lost."""
    model = llama_like(
        "Bamba", mamba_n_heads=4, mamba_d_head=8, mamba_n_groups=1, mamba_d_state=8,
        attn_layer_indices=[0], z_loss_coefficient=0.1, head_dim="default",
    )  # fmt: skip
    GatedHead(model, "mle")
    with pytest.raises(UserError, match="computes a term of its loss from the logits outside"):
        model(**batch()).loss.backward()


def test_options_that_are_refused():
    model = gpt2()
    for options, words in (
        ({"method": "cosreg"}, "expected the method agg, agps, face, mle, got 'cosreg'"),
        ({"excluded": [0, -1]}, "expected excluded in"),
        ({"tokenizer": SimpleNamespace()}, "found the slow tokenizer SimpleNamespace"),
    ):
        with pytest.raises((UserError, ValueError), match=words):
            GatedHead(model, **options)
    model.lm_head = nn.Sequential(nn.Linear(16, VOCABULARY))
    with pytest.raises(UserError, match="GPT2LMHeadModel to end in an nn.Linear, found Sequential"):
        GatedHead(model)


def test_a_tokenizer_says_what_is_excluded():
    """Its special and reserved tokens and the rows without a token: of 61 rows, 8 have tokens, 2 of
    them ordinary."""
    tokens = [
        "<s>", "the", "[unused3]", "sea", "<|reserved_special_token_7|>", "<unk>", "<0xC0>",
        "<mine>",
    ]  # fmt: skip
    special = {"bos_token": "<s>", "unk_token": "<unk>", "extra_special_tokens": ["<mine>"]}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(tokens), **special
    )
    for more, expected in (({}, [1, 3]), ({"excluded": [3]}, [1])):
        gated = GatedHead(gpt2(), rare_fraction=0.3, tokenizer=tokenizer, **more)
        assert (~gated.objective.excluded).nonzero().flatten().tolist() == expected
    with pytest.raises(UserError, match="found the token 7 beyond the 7 rows"):
        GatedHead(gpt2(vocab_size=7), tokenizer=tokenizer)
