"""Gated training of transformers models: against the naive three logits, and against transformers'
own loss."""

import copy
import io
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from tests import sharding
from tests.conftest import run_command
from tests.small_transformers import (
    VOCABULARY,
    batch,
    dataset,
    gpt2,
    llama_like,
    trainer,
    word_tokenizer,
)

pytest.importorskip("transformers", reason="needs transformers 5: pip install '.[transformers]'")
pytest.importorskip("accelerate", reason="needs accelerate: pip install '.[transformers]'")

from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from transformers import GPT2LMHeadModel
from transformers.modeling_outputs import CausalLMOutput

from agg_fairseq.errors import UserError
from agg_fairseq.functional import agg_gates, naive_gated_cross_entropy, rare_tokens
from agg_fairseq.integrations import factorize_head, label_counts
from agg_fairseq.integrations import transformers as integration
from agg_fairseq.integrations.transformers import GatedLoss
from agg_fairseq.objective.face import face_weights


@pytest.fixture(autouse=True)
def _accelerate_forgets():
    """A training that was broken off leaves a micro-batch that does not end an update."""
    yield
    GradientState._reset_state()


MODELS = {
    "tied": gpt2,
    "untied": lambda: llama_like("Llama", tie_word_embeddings=False),
    "bias": lambda: llama_like("Phi", head_dim="default"),
    "scaled": lambda: llama_like("Granite", logits_scaling=0.3, head_dim="default"),
    "capped": lambda: llama_like("Gemma2", final_logit_softcapping=0.05),
    "mixture of experts": lambda: llama_like(
        "Mixtral", output_router_logits=True, num_local_experts=2
    ),
    "checkpointed": lambda: llama_like("Llama", num_hidden_layers=2),
}


def shifted(labels):
    return F.pad(labels, (0, 1), value=-100)[:, 1:]


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def assert_close(found, expected, tolerance):
    torch.testing.assert_close({**found}, {**expected}, rtol=tolerance, atol=tolerance)


def used(model, way):
    """A plain model: one that has had a GatedLoss, or the copy of one that has it."""
    gated = GatedLoss(model, rare_fraction=0.3)
    if way == "deep copy":
        return copy.deepcopy(model)
    if way == "saved":
        torch.save(model, file := io.BytesIO())
        return torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    if way == "bfloat16":
        in_bfloat16(model)
    gated.remove()
    return model


def in_bfloat16(model, **options):
    """By accelerate, which replaces `forward`."""
    AcceleratorState._reset_state(reset_partial_state=True)
    return Accelerator(cpu=True, mixed_precision="bf16", **options).prepare(model)


@pytest.mark.parametrize("way", ["removed", "deep copy", "saved", "bfloat16"])
@pytest.mark.parametrize(
    ("kind", "items"),
    zip(MODELS, [None, 17, torch.tensor(17), None, 17, None, None], strict=True),
    ids=list(MODELS),
)
def test_plain_likelihood_is_that_of_transformers(kind, items, way):
    """Its mean, or divided by the number of targets that Trainer passes."""
    model = used(MODELS[kind](), way)
    given = batch(ignored=[(0, 3), (0, 4), (2, 11)])
    more = {} if items is None else {"num_items_in_batch": items}
    output = model(**given, **more)
    assert output.logits is not None and output.loss.dtype == torch.float32
    expected_gradients = gradients(model, output.loss)
    gated = GatedLoss(model, "mle")
    if kind == "checkpointed":
        model.gradient_checkpointing_enable()
    found = model(**given, **more).loss
    tolerance = 0.01 if way == "bfloat16" else 1e-6
    torch.testing.assert_close(found, output.loss, rtol=tolerance, atol=tolerance)
    assert_close(gradients(model, found), expected_gradients, tolerance)
    gated.commit_update()  # which knows of the loss


@pytest.mark.parametrize("kind", ["tied", "factorized"])
def test_label_smoothing_is_that_of_torch(kind):
    """ε/V for each token; transformers smooths labels so too."""
    model, given = gpt2(), batch(ignored=[(0, 3), (2, 11)])
    if kind == "factorized":
        factorize_head(model, torch.arange(VOCABULARY) % 3)
    logits, target = model(**given).logits, shifted(given["labels"]).flatten()
    expected = F.cross_entropy(logits.flatten(0, 1), target, label_smoothing=0.2)
    expected_gradients = gradients(model, expected)
    GatedLoss(model, "mle", label_smoothing=0.2)
    found = model(**given).loss
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-6)
    assert_close(gradients(model, found), expected_gradients, 1e-5)


def test_face_weighs_by_its_own_predictions():
    """Of the updates before; within an update, those of a batch count once."""
    model = gpt2().double()
    gated, given = GatedLoss(model, "face"), batch(ignored=[(0, 3), (2, 11)])
    logits, target = gpt2().double()(**given).logits, shifted(given["labels"])
    kept = target != -100
    predicted = torch.bincount(logits.argmax(-1)[kept], minlength=VOCABULARY)
    for _ in range(2):
        model(**given).loss.backward()
    gated.commit_update()
    assert gated.objective.counter.appearances.equal(predicted)
    nll = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
    weights = face_weights(predicted).double()[target.flatten().clamp(min=0)]
    expected = (nll * weights).sum() / kept.sum()
    torch.testing.assert_close(model(**given).loss.double(), expected, rtol=1e-6, atol=1e-6)
    gated.load_state_dict(gated.state_dict())
    assert gated.objective.counter.appearances.equal(predicted)


@pytest.mark.parametrize("kind", ["tied", "untied", "bias", "scaled", "capped"])
def test_agg_has_the_gradients_of_the_three_logits(kind):
    """With an update in the window; labels are −100 in places."""
    model = MODELS[kind]().double()
    with pytest.raises(ValueError, match="expected excluded in"):
        GatedLoss(model, rare_fraction=0.3, excluded=[0, -1])
    gated = GatedLoss(model, rare_fraction=0.3, excluded=[0, 2])
    first, second = batch(seed=1), batch(ignored=[(0, 0), (1, 5)], seed=2)
    model(**first).loss.backward()
    gated.commit_update()
    found = model(**second).loss
    found_gradients = gradients(model, found)

    appearances = torch.bincount(first["labels"][:, 1:].flatten(), minlength=VOCABULARY)
    excluded = torch.zeros(VOCABULARY, dtype=torch.bool)
    excluded[[0, 2]] = True
    rare = rare_tokens(appearances, 1, rare_fraction=0.3, excluded=excluded)
    assert gated.objective.gates(None).rare.equal(rare)
    head, target = model.get_output_embeddings(), shifted(second["labels"])
    features = model.base_model(input_ids=second["input_ids"]).last_hidden_state
    gates = agg_gates(appearances, 1, rare)
    changed = {"scaled": {"scale": 1 / 0.3}, "capped": {"softcap": 0.05}}.get(kind, {})
    naive = naive_gated_cross_entropy(
        features, head.weight, target, bias=head.bias, gates=gates, **changed
    )
    naive = naive / (target != -100).sum()
    torch.testing.assert_close(found.double(), naive, rtol=1e-6, atol=1e-6)
    assert_close(found_gradients, gradients(model, naive), 1e-9)


def test_labels_given_in_other_ways():
    """Shifted by the caller; and by position."""
    model, given = gpt2(), batch(ignored=[(1, 4)])
    expected = gradients(model, model(**given).loss)
    gated, target = GatedLoss(model, rare_fraction=0.3), shifted(given["labels"])
    assert_close(gradients(model, model(**given, shift_labels=target).loss), expected, 1e-6)
    gated.commit_update()
    assert gated.objective.counter.appearances.equal(
        torch.bincount(target[target != -100], minlength=VOCABULARY)
    )
    gated.remove()
    GatedLoss(model, "mle")
    by_position = model(
        given["input_ids"], None, None, None, None, None, None, None, given["labels"]
    ).loss
    assert_close(gradients(model, by_position), expected, 1e-6)


@pytest.mark.parametrize("way", ["deep copy", "averaged", "quantized", "bfloat16"])
def test_a_copy_has_weights_of_its_own(way):
    """In evaluation and training; and a GatedLoss of its own, which `remove` takes off again."""
    model, given = gpt2(), batch()
    gated = GatedLoss(model, rare_fraction=0.3)
    if way == "bfloat16":
        in_bfloat16(model)
    if way == "averaged":
        made = torch.optim.swa_utils.AveragedModel(model).module
    elif way == "quantized":
        made = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})
    else:
        made = copy.deepcopy(model)
    prompt, options = given["input_ids"][:, :3], {"max_new_tokens": 8, "do_sample": False}
    with torch.no_grad():
        expected = made.eval()(**given), made.generate(prompt, **options)
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape))
        found = made(**given), made.generate(prompt, **options)
        assert found[0].logits.equal(expected[0].logits) and found[1].equal(expected[1])
        assert not model.eval()(**given).logits.equal(found[0].logits)
    if way == "quantized":
        return
    first = gradients(made, made.train()(**given).loss)
    assert first and all(parameter.grad is None for parameter in model.parameters())
    own = GatedLoss(made, rare_fraction=0.3)
    with pytest.raises(UserError, match="already has one"):
        GatedLoss(made)
    assert made(**given).logits is None and model.train()(**given).logits is None
    counters = own.objective.counter, gated.objective.counter
    assert counters[0].current.sum() == counters[1].current.sum() == 3 * 11
    own.remove()
    output = made(**given)
    assert output.logits is not None and model(**given).logits is None
    assert_close(gradients(made, output.loss), first, 0)


class MuReadout(torch.nn.Linear):
    """The output layer of mup, which scales its input; it may begin at 0."""

    width = 4.0

    def forward(self, features):
        return super().forward(features / self.width)


class Normalized(torch.nn.Linear):
    def forward(self, features):
        return super().forward(F.layer_norm(features, features.shape[-1:]))


class Shifted(torch.nn.Linear):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.shift = torch.nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, features):
        return super().forward(features) + self.shift


class Scaled(GPT2LMHeadModel):
    """Its logits have a learned scale."""

    def forward(self, input_ids, labels):
        logits = self.lm_head(self.transformer(input_ids).last_hidden_state) * self.scale
        return CausalLMOutput(loss=self.loss_function(logits, labels, VOCABULARY), logits=logits)


def with_head(head_class):
    model = llama_like("Llama", tie_word_embeddings=False)
    torch.manual_seed(1)
    model.lm_head = head_class(16, VOCABULARY, bias=False)
    return model


def diverged():
    model = gpt2()
    torch.nn.init.constant_(model.lm_head.weight[3], torch.nan)
    return model


def with_learned_scale():
    model = gpt2()
    model.__class__, model.scale = Scaled, torch.nn.Parameter(torch.ones(()))
    return model


@pytest.mark.parametrize("starts_at_zero", [False, True])
@pytest.mark.parametrize("way", ["removed", "deep copy", "bfloat16"])
def test_an_output_layer_that_scales(way, starts_at_zero):
    """Also by a number that changes after the first step."""
    model = with_head(MuReadout)
    if starts_at_zero:
        torch.nn.init.zeros_(model.lm_head.weight)
    model = used(model, way)
    tolerance = 0.01 if way == "bfloat16" else 1e-6
    for width in (4.0, 0.5, torch.tensor(2.0), torch.tensor(0.5)):
        model.lm_head.width = width
        loss = model(**batch()).loss
        expected = gradients(model, loss)
        gated = GatedLoss(model, "mle")
        found = model(**batch()).loss
        torch.testing.assert_close(found, loss, rtol=tolerance, atol=tolerance)
        assert_close(gradients(model, found), expected, tolerance)
        gated.remove()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: with_head(Normalized), r"that is not s \(H Wᵀ \+ b\)"),
        (lambda: with_head(Shifted), "that depends on lm_head.shift beside its weight"),
        (with_learned_scale, "depend on scale after the output layer"),
        (diverged, "has NaN or infinite weights: the model has diverged"),
    ],
    ids=["normalized", "learned bias", "learned scale", "diverged"],
)
@pytest.mark.parametrize("way", ["removed", "deep copy", "bfloat16"])
def test_output_layers_that_compute_something_else_are_refused(make, problem, way):
    model = used(make(), way)
    expected = model(**batch()).loss
    gated = GatedLoss(model, "mle")
    for _ in range(2):
        with pytest.raises(UserError, match=problem):
            model(**batch())
    gated.remove()
    torch.testing.assert_close(model(**batch()).loss, expected, rtol=0, atol=0, equal_nan=True)


def test_a_term_of_the_logits_is_refused():
    """Of which no gradient must be lost: in the backward pass."""
    import transformers

    bamba = transformers.models.bamba.modeling_bamba
    config = transformers.BambaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, mamba_n_heads=4, mamba_d_head=8,
        mamba_n_groups=1, mamba_d_state=8, attn_layer_indices=[0], z_loss_coefficient=0.1,
    )  # fmt: skip
    model = bamba.BambaForCausalLM(config).train()
    GatedLoss(model, "mle")
    with pytest.raises(UserError, match="computes a term of its loss from the logits outside"):
        model(**batch()).loss.backward()


def test_what_changes_after_the_first_step_is_seen():
    """A soft cap, a scale, and the function of the loss."""
    capped, scaled = MODELS["capped"](), MODELS["scaled"]()
    for model, name, value in (
        (capped, "final_logit_softcapping", 0.02),
        (scaled, "logits_scaling", 3),
    ):
        gated = GatedLoss(model, "mle")
        model(**batch())
        setattr(model.config, name, value)
        if hasattr(model, name):
            setattr(model, name, value)
        found = model(**batch()).loss
        gated.remove()
        torch.testing.assert_close(found, model(**batch()).loss)
    GatedLoss(scaled, "mle")
    scaled.loss_function = lambda logits, labels, **options: logits.sum()
    with pytest.raises(UserError, match="the loss of causal language models"):
        scaled(**batch())


@pytest.mark.parametrize("way", ["LBFGS", "SAM", "checkpoint"])
def test_a_batch_counts_once_per_update(way):
    """However often its loss is computed; another batch, or another update, counts again."""
    model = gpt2()
    gated = GatedLoss(model, rare_fraction=0.3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    if way != "LBFGS":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure():
        optimizer.zero_grad()
        for given in batches:
            if way == "checkpoint":
                checkpoint(
                    lambda ids, labels: model(ids, labels=labels).loss,
                    *given.values(),
                    use_reentrant=False,
                ).backward()
            else:
                model(**given).loss.backward()
        return torch.ones(())

    for update in (1, 2):
        batches = [batch(seed=1), batch(seed=2)]
        if way == "SAM":
            closure()  # at the weights from which the first step goes up
        if way == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        gated.commit_update()
        assert gated.objective.counter.appearances.sum() == update * 2 * 3 * 11
        assert gated.objective.counter.updates == update


@pytest.mark.parametrize("is_numpy", [True, False])
def test_labels_that_are_written_into_the_same_memory_are_others(is_numpy):
    model = gpt2()
    gated = GatedLoss(model, rare_fraction=0.3)
    ids = batch()["input_ids"]
    with torch.inference_mode(not is_numpy):
        memory = ids.clone()
    for value in (3, 4):
        memory.numpy()[:] = value
        labels = torch.from_numpy(memory.numpy()) if is_numpy else memory
        model(ids, labels=labels).loss.backward()
    gated.commit_update()
    assert gated.objective.counter.appearances[3:5].tolist() == [33, 33]


def test_everything_but_training_steps_is_untouched():
    model, given = gpt2(), batch()
    keys = list(model.state_dict())
    generated = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    prompt = given["input_ids"][:, :4]
    expected, continued = model.eval()(**given), model.generate(prompt, **generated)
    gated = GatedLoss(model, rare_fraction=0.3)
    found = model(**given)
    assert found.loss.equal(expected.loss) and found.logits.equal(expected.logits)
    assert model.generate(prompt, **generated).equal(continued)
    model.train()
    assert model(input_ids=given["input_ids"]).logits.equal(expected.logits)  # no labels
    with torch.no_grad():
        assert model(**given).loss.equal(expected.loss)
    assert not gated.objective.counter.current.any() and list(model.state_dict()) == keys
    loss, logits = model(**given, return_dict=False)[:2]
    assert loss.requires_grad and logits is None  # nothing that would pass for logits


def test_remove_restores_the_model():
    """Also after a failure, in making one or in a training step."""
    model, given = gpt2(), batch()
    expected = gradients(model, model(**given).loss)
    before = model.__dict__.copy(), model.lm_head.__dict__.copy()
    with pytest.raises(ValueError, match="between 0 and 1"):
        GatedLoss(model, alpha=1.5)
    gated = GatedLoss(model, rare_fraction=0.3)
    with pytest.raises(UserError, match="already has one"):
        GatedLoss(model)
    with pytest.raises(IndexError):
        model(input_ids=given["input_ids"], labels=torch.full_like(given["labels"], VOCABULARY))
    gated.remove()
    gated.remove()
    output = model(**given)
    assert output.logits.shape == (3, 12, VOCABULARY)
    assert_close(gradients(model, output.loss), expected, 0)
    assert (model.__dict__, model.lm_head.__dict__) == before


def test_a_tokenizer_says_what_is_excluded():
    """Its special and reserved tokens and the rows without a token: of 61 rows, 8 have tokens, 2 of
    them ordinary."""
    import transformers

    tokens = [
        "<s>", "the", "[unused3]", "sea", "<|reserved_special_token_7|>", "<unk>", "<0xC0>",
        "<mine>",
    ]  # fmt: skip
    special = {"bos_token": "<s>", "unk_token": "<unk>", "extra_special_tokens": ["<mine>"]}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(tokens), **special
    )
    gated = GatedLoss(gpt2(), rare_fraction=0.3, tokenizer=tokenizer)
    assert (~gated.objective.excluded).nonzero().flatten().tolist() == [1, 3]
    gated = GatedLoss(gpt2(), rare_fraction=0.3, tokenizer=tokenizer, excluded=[3])
    assert (~gated.objective.excluded).nonzero().flatten().tolist() == [1]
    with pytest.raises(UserError, match="found the token 7 beyond the 7 rows"):
        GatedLoss(gpt2(vocab_size=7), tokenizer=tokenizer)
    with pytest.raises(UserError, match="found the slow tokenizer SimpleNamespace"):
        GatedLoss(gpt2(), tokenizer=SimpleNamespace())
    with pytest.raises(ValueError, match="expected the method agg, agps, face, mle, got 'cosreg'"):
        GatedLoss(gpt2(), "cosreg")


def test_hooks_on_the_output_layer_are_told_once(caplog):
    model, shapes = gpt2(), []
    gated = GatedLoss(model, "mle")
    model(**batch())
    assert not caplog.records
    model.lm_head.register_forward_hook(lambda module, given, found: shapes.append(found.shape))
    for _ in range(2):
        model(**batch())
    [record] = caplog.records
    assert "get a placeholder of shape (1, 1, V)" in record.message
    gated.remove()
    model(**batch())
    assert shapes[0] == (1, 1, VOCABULARY) and shapes[-1] == (3, 12, VOCABULARY)


@pytest.mark.parametrize("found", [(0.4, 2.0), None], ids=["scaled and capped", "another change"])
def test_logits_that_a_hook_changes(found):
    model = gpt2()
    gated = GatedLoss(model, "mle")
    model.lm_head.register_forward_hook(
        lambda module, given, z: (
            (2 * torch.tanh(z / 5) if found else z - z.mean()) if z.dim() else None
        )
    )
    for given in (batch(seed=0), batch(seed=1)):
        if found is None:
            with pytest.raises(UserError, match="GPT2LMHeadModel changes its logits after the out"):
                model(**given)
            continue
        loss = model(**given).loss
        with torch.no_grad():
            torch.testing.assert_close(model(**given).loss, loss)
        assert gated._seen[1] == pytest.approx(found)


def test_refuses_models():
    """As they are made, and in a training step."""
    model = gpt2()
    model.lm_head = torch.nn.Sequential(torch.nn.Linear(16, VOCABULARY))
    with pytest.raises(
        UserError, match="expected GPT2LMHeadModel to end in an nn.Linear, found Sequential"
    ):
        GatedLoss(model)
    frozen, resized, shorter = gpt2(), MODELS["untied"](), gpt2()
    for model in (frozen, resized, shorter):
        GatedLoss(model, rare_fraction=0.3)
    frozen.lm_head.weight.requires_grad_(False)
    resized.resize_token_embeddings(VOCABULARY + 3)  # which gets another output layer
    for model, more, message in (
        (frozen, {}, "does not train"),
        (resized, {}, "found 64 rows in the output embedding, expected 61"),
        (shorter, {"logits_to_keep": 3}, "target of shape"),
    ):
        with pytest.raises((UserError, ValueError), match=message):
            model(**batch(), **more)


def test_a_state_is_restored_but_for_the_window():
    """That of a method without counts leaves the window empty."""
    first = GatedLoss(gpt2(), window=5)
    for seed in range(4):
        first.model(**batch(seed=seed))
        first.commit_update()
    second = GatedLoss(gpt2(), window=2)
    likelihood = GatedLoss(gpt2(), "mle")
    third = GatedLoss(gpt2())
    second.load_state_dict(first.state_dict())
    counter = second.objective.counter
    expected = sum(
        torch.bincount(batch(seed=s)["labels"][:, 1:].flatten(), minlength=VOCABULARY)
        for s in (2, 3)
    )
    assert (counter.window, counter.updates) == (2, 2) and counter.appearances.equal(expected)
    likelihood.load_state_dict(first.state_dict())  # needs no counts
    third.load_state_dict(likelihood.state_dict())
    assert third.objective.counter.updates == 0
    with pytest.raises(ValueError, match="over 61 tokens, got 7"):
        third.load_state_dict(GatedLoss(gpt2(vocab_size=7)).state_dict())


def test_trainer_counts_one_slot_per_update(tmp_path):
    """22 examples in batches of 2, 3 of them per update, the last update of an epoch with 2: 4
    updates per epoch. Validation and a skipped update are not counted."""
    model = gpt2()
    gated = GatedLoss(model, rare_fraction=0.2)
    training = trainer(model, tmp_path, gated, num_train_epochs=1)
    training.train()
    counter = gated.objective.counter
    assert (counter.window, counter.updates) == (4, 4)
    assert counter.appearances.equal(label_counts(dataset(), VOCABULARY))
    training.evaluate()
    model(**batch(seed=1)).loss.backward()
    # as Trainer says it
    gated.on_optimizer_step(None, None, None, optimizer=SimpleNamespace(step_was_skipped=True))
    assert counter.updates == 4


def test_the_window_of_an_epoch_is_bounded(tmp_path, monkeypatch):
    """12 updates in at most 5 slots, of 3 updates each; a window that is given has one for each."""
    monkeypatch.setattr(integration, "MOST_SLOTS", 5)
    for window, updates in ((None, (10, 11, 12)), (12, (12,))):
        model = gpt2()
        gated = GatedLoss(model, rare_fraction=0.2, window=window)
        arguments = {"gradient_accumulation_steps": 1, "max_steps": 13}
        trainer(model, tmp_path, gated, dataset(24), **arguments).train()
        counter = gated.objective.counter
        assert counter.window == 12 and counter.updates in updates
        assert counter.appearances.sum() == counter.updates * 2 * 11
        assert (len(counter.get_extra_state()["sizes"]) <= 5) == (window is None)


@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bfloat16"])
def test_trainer_trains_as_with_its_own_loss(tmp_path, bf16):
    """Plain likelihood through all of Trainer, with gradient accumulation and clipping; and after
    `remove`, with its own loss again."""
    own, ours = gpt2(), gpt2()
    expected = trainer(own, tmp_path / "own", bf16=bf16).train().training_loss
    gated = GatedLoss(ours, "mle")
    found = trainer(ours, tmp_path / "ours", gated, bf16=bf16).train().training_loss
    assert found == pytest.approx(expected, rel=1e-3 if bf16 else 1e-5)
    if not bf16:  # in which Adam's step has the sign of a gradient that is rounding alone
        assert_close(ours.state_dict(), own.state_dict(), 1e-4)
    gated.remove()
    again = trainer(ours, tmp_path / "ours", bf16=bf16, num_train_epochs=1)
    again.compute_loss_func = lambda outputs, labels, num_items_in_batch: outputs.logits.mean()
    again.train()


@pytest.mark.slow
def test_trainer_resumes_bit_for_bit(tmp_path, caplog):
    """With gradient accumulation and dropout, from the middle of the second epoch, in whatever
    folder that is. The counts are in scheduler.pt, as tensors and numbers; without them, that is
    said."""

    def started(**more):
        model = gpt2(resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
        gated = GatedLoss(model, rare_fraction=0.2, adv_epsilon=0.05)
        training = trainer(
            model, tmp_path / "run", gated, save_strategy="steps", save_steps=5,
            restore_callback_states_from_checkpoint=bool(more),
        )  # fmt: skip
        training.train(**more)
        assert training.state.global_step == 8
        return model.state_dict(), gated.state_dict()["counter._extra_state"]

    weights, counts = started()
    folder = tmp_path / "elsewhere"
    (tmp_path / "run" / "checkpoint-5").rename(folder)
    found, found_counts = started(resume_from_checkpoint=str(folder))
    assert all(found[name].equal(expected) for name, expected in weights.items())
    assert all(
        found_counts[name].equal(counts[name]) for name in ("sizes", "tokens", "counts", "current")
    )
    assert "GatedLoss" not in (folder / "trainer_state.json").read_text() + caplog.text
    schedule = torch.load(folder / "scheduler.pt", weights_only=True)
    assert schedule.pop("gated_loss")["counter._extra_state"]["sizes"].numel() == 4
    torch.save(schedule, folder / "scheduler.pt")
    _, found_counts = started(resume_from_checkpoint=str(folder))
    assert found_counts["sizes"].numel() == 3
    assert "found no counts in the scheduler.pt" in caplog.text


@pytest.mark.parametrize(
    "kind", ["label smoothing", "a loss of the user's", "another model", "not a callback"]
)
def test_trainer_refuses_a_loss_that_does_not_come_from_or_go_to_its_callback(tmp_path, kind):
    model, smoothing = gpt2(), 0.1 * (kind == "label smoothing")
    gated = GatedLoss(model, rare_fraction=0.2)
    trained = gpt2() if kind == "another model" else model
    callback = gated
    words = "no loss was computed in this update by the model that GatedLoss was made with"
    if kind == "not a callback":
        callback, words = None, "the optimizer has stepped, but the update has not ended"
    training = trainer(trained, tmp_path, callback, label_smoothing_factor=smoothing)
    if kind == "a loss of the user's":
        training.compute_loss_func = lambda outputs, labels, num_items_in_batch: (
            outputs.logits.float().mean()
        )
    with pytest.raises(UserError, match=words):
        training.train()


@pytest.mark.parametrize("kind", ["tied", "factorized"])
def test_a_batch_without_targets_changes_nothing(tmp_path, kind):
    """Its loss is 0/0 as in transformers, and its gradient 0; also as the last update of
    Trainer."""
    found, empty = [], torch.full((12,), -100)
    for without in ([], [{**row, "labels": empty} for row in dataset(2)]):
        model = gpt2()
        if kind == "factorized":
            factorize_head(model, torch.arange(VOCABULARY) % 3)
        gated = GatedLoss(
            model, **({"method": "mle"} if kind == "factorized" else {"rare_fraction": 0.3})
        )
        arguments = {"num_train_epochs": 1, "optim": "sgd", "train_sampling_strategy": "sequential"}
        trainer(model, tmp_path, gated, dataset(6) + without, **arguments).train()
        assert gated.objective.counter is None or gated.objective.counter.updates == 1 + bool(
            without
        )
        found.append(model.state_dict())
    assert_close(found[1], found[0], 1e-6)
    for more in ({}, {"num_items_in_batch": 0}, {"num_items_in_batch": torch.tensor(0)}):
        loss = model(**{**batch(), "labels": empty.expand(3, 12)}, **more).loss
        assert loss.isnan()
        assert not any(gradient.any() for gradient in gradients(model, loss).values())


@pytest.mark.parametrize("kind", ["its forward called", "wrapped by PEFT"])
def test_gated_also_without_hooks(kind):
    """Some versions of PEFT call `model.forward(…)` of the base model."""
    model = MODELS["untied"]()
    if kind == "wrapped by PEFT":
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(
            target_modules=["q_proj"], modules_to_save=["lm_head"], task_type="CAUSAL_LM"
        )
        model = peft.get_peft_model(model, config)
    gated = GatedLoss(model, rare_fraction=0.3)
    for seed in range(2):
        (model if kind == "wrapped by PEFT" else model.forward)(**batch(seed=seed)).loss.backward()
        gated.commit_update()
    assert gated.objective.counter.appearances.sum() == 2 * 3 * 11
    assert gated.objective.gates(None).rare.any()


def test_accumulation_of_accelerate():
    """`commit_update` may follow each micro-batch, as the step of accelerate's optimizer does."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = gpt2()
    gated = GatedLoss(model, rare_fraction=0.3)
    wrapped, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for seed in range(4):
        with accelerator.accumulate(wrapped):
            accelerator.backward(wrapped(**batch(seed=seed)).loss)
            optimizer.step()
            optimizer.zero_grad()
            gated.commit_update()
    counter = gated.objective.counter
    assert (counter.updates, int(counter.appearances.sum())) == (2, 4 * 3 * 11)


@pytest.mark.slow
def test_several_workers_and_compiled_models_train_as_one(tmp_path):
    """DDP, FSDP and FSDP2 in float64, Trainer with DDP and with `fsdp`, and a resume of each;
    torch.compile."""
    sharding.main(tmp_path)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    run_command("python", *launcher, "-m", "tests.sharding", tmp_path)
    alone, together = (
        torch.load(tmp_path / f"{workers}.pt", weights_only=True) for workers in (1, 2)
    )
    assert_close(alone["compiled"]["weights"], alone["tied"]["weights"], 1e-12)
    assert (
        alone["agps"]["weights"]["lm_head.weight"] - alone["tied"]["weights"]["lm_head.weight"]
    ).abs().max() > 1e-3
    assert len(together) == 4 * 2 + 1 + 2
    for (kind, _), runs in together.items():
        for found in runs.values():
            assert_close(
                found["weights"], alone[kind]["weights"], 1e-5 if kind == "Trainer" else 1e-12
            )
            for name in ("sizes", "tokens", "counts") if kind != "agps" else ():
                assert found["counts"]["counter._extra_state"][name].equal(
                    alone[kind]["counts"]["counter._extra_state"][name]
                )
