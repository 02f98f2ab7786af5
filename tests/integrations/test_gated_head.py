"""The gradients under GatedHead, whatever a model makes of its logits; what it counts, and its
state."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch.nn.utils.prune import l1_unstructured
from torch.testing import assert_close
from transformers import GPT2LMHeadModel
from transformers.modeling_outputs import CausalLMOutput

from agg_fairseq.errors import UserError
from agg_fairseq.functional import Gates, gated_linear, naive_gated_cross_entropy
from agg_fairseq.gating import AgpsGating
from tests.integrations.test_every_model import compared
from tests.small_transformers import (
    VOCABULARY,
    batch,
    gated_head,
    gpt2,
    gradients,
    llama_like,
    untied,
)


class MuReadout(nn.Linear):
    """The output layer of mup, which scales its input."""

    width = 4

    def forward(self, features):
        return super().forward(features / self.width)


class Shifted(nn.Linear):
    """A bias of a plug-in's, which is not gated."""

    def __init__(self, *sizes):
        super().__init__(*sizes, bias=False)
        self.shift = nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, features):
        return super().forward(features) + self.shift


class Scaled(GPT2LMHeadModel):
    """Its logits have a learned scale, and its loss a second term of the logits."""

    def forward(self, input_ids, labels):
        logits = self.lm_head(self.transformer(input_ids).last_hidden_state) * self.scale
        loss = self.loss_function(logits, labels, VOCABULARY)
        return CausalLMOutput(loss + 1e-3 * logits.logsumexp(-1).square().mean(), logits)


def replace_head(layer):
    model = untied()
    model.lm_head = layer(16, VOCABULARY)
    return model


def scaled():
    model = gpt2()
    model.__class__, model.scale = Scaled, nn.Parameter(torch.tensor(2.0))
    return model


def changed(change):
    """A model, untied, of which the output layer was changed."""
    model = untied()
    change(model.lm_head)
    return model


def half_as_large(head):
    head.width = 2
    head.forward = lambda features: F.linear(input=features, weight=head.weight) / 2


def checkpointed(use_reentrant):
    """Its blocks run again in the backward pass."""
    model, runs = untied(), []
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: runs.append(1))
    model(**batch()).loss.backward()
    assert len(runs) == 2, "checkpointing had no effect"
    return model


MODELS = {
    "tied": gpt2,
    "bias": lambda: llama_like("Phi", head_dim="default"),
    "scale": lambda: llama_like("Granite", logits_scaling=0.3, head_dim="default"),
    "cap": lambda: llama_like("Gemma2", final_logit_softcapping=0.5),
    "mup": lambda: replace_head(lambda *sizes: MuReadout(*sizes, bias=False)),
    "bias of a plug-in": lambda: replace_head(Shifted),
    "learned scale, two losses": scaled,
    "hook": lambda: changed(
        lambda head: head.register_forward_hook(lambda _, given, z: z - z.mean(-1, keepdim=True))
    ),
    "pre-hook": lambda: changed(
        lambda head: head.register_forward_pre_hook(lambda _, given: (2 * given[0],))
    ),
    "forward of an instance": lambda: changed(half_as_large),
    "weight_norm": lambda: changed(weight_norm),
    "spectral_norm": lambda: changed(lambda head: spectral_norm(head, n_power_iterations=300)),
    "parametrized weight_norm": lambda: changed(parametrizations.weight_norm),
    "pruning": lambda: changed(lambda head: l1_unstructured(head, "weight", 0.3)),
    "compiled": lambda: changed(lambda head: head.compile(backend="eager")),
    "gradient checkpointing": lambda: checkpointed(use_reentrant=False),
    "gradient checkpointing, re-entrant": lambda: checkpointed(use_reentrant=True),
}


@pytest.mark.parametrize("kind", MODELS)
def test_gates_whatever_follows_the_output_layer(kind):
    target = None
    if kind == "learned scale, two losses":  # the labels of `step`, moved
        labels = torch.randint(4, VOCABULARY, (2, 16), generator=torch.Generator().manual_seed(0))
        labels[0, :4] = -100
        target = F.pad(labels, (0, 1), value=-100)[:, 1:].flatten()
    loss, plain, literal = compared(MODELS[kind](), target)
    assert loss == 0 and plain <= 1e-6 and literal <= 1e-6


@pytest.mark.parametrize("way", ["deep copy", "saved", "removed"])
@pytest.mark.parametrize("is_half", [False, True])
def test_everything_but_training_steps_is_untouched(way, is_half):
    """In evaluation, of a copy, and after `remove`; by accelerate in half precision, too."""
    model, given = gpt2(), batch()
    expected = gradients(model, model(**given).loss)
    before = [*model.state_dict()], vars(model).copy(), vars(model.lm_head).copy()
    logits = model.eval()(**given).logits
    gated = gated_head(model)
    assert model(**given).logits.equal(logits)
    model.train()
    assert model(input_ids=given["input_ids"]).logits.equal(logits)
    with torch.no_grad():
        assert model(**given).logits.equal(logits)
    assert not gated.gating.counter.current.any()
    with pytest.raises(IndexError):
        model(input_ids=given["input_ids"] + VOCABULARY, labels=given["labels"])
    if is_half:
        AcceleratorState._reset_state(reset_partial_state=True)
        Accelerator(cpu=True, mixed_precision="bf16").prepare(model)  # replaces `forward`
        with pytest.raises(UserError, match="already has one"):
            gated_head(model)
    output = model(**given)
    assert output.logits.shape == logits.shape
    assert output.logits.equal(logits) != is_half, "else bfloat16 had no effect"
    assert_close(gradients(model, output.loss), expected, rtol=is_half * 0.05, atol=is_half * 0.05)
    gated.roll_back_update()
    if way == "removed":
        gated.remove()
        gated.remove()
        assert is_half or ([*model.state_dict()], vars(model), vars(model.lm_head)) == before
        used = model
    elif way == "deep copy":
        used = copy.deepcopy(model)
    elif not is_half:  # what accelerate makes of a model cannot be pickled
        torch.save(model, file := io.BytesIO())
        used = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    else:
        return
    found = gradients(used, used(**given).loss)
    assert_close(found, expected, rtol=is_half * 0.05, atol=is_half * 0.05)
    assert not gated.gating.counter.current.any()
    own = gated_head(used)
    used(**given).loss.backward()
    own.commit_update()
    assert own.gating.counter.updates == 1 and not gated.gating.counter.current.any()
    own.remove()
    assert_close(gradients(used, used(**given).loss), found, rtol=0, atol=0)


def test_a_training_step_without_labels_is_told(caplog):
    """Its loss may be computed outside, where it would not be gated without a word."""
    model, given = gpt2(), batch()
    gated_head(model)
    model.eval()(input_ids=given["input_ids"])
    model.train()(**given)
    assert "GatedHead" not in caplog.text
    for _ in range(2):
        model(input_ids=given["input_ids"])
    assert caplog.text.count("without labels, which is not gated") == 1


def test_an_early_exit_after_the_forward_pass_is_refused():
    """Its targets are not known; by the line of the message, it is gated."""
    model, given = untied(), batch()
    gated = gated_head(model)
    with pytest.raises(UserError, match="call of the output layer after the forward pass"):
        model.lm_head(model.model(given["input_ids"]).last_hidden_state)
    for expected in (None, torch.ones(VOCABULARY), torch.zeros(VOCABULARY)):
        gates = None if expected is None else Gates(expected.bool() | True, expected, expected)
        gated.gating.gates = lambda target, gates=gates: gates
        output = model(**given, output_hidden_states=True)
        hidden = output.hidden_states[1]
        with pytest.raises(UserError, match="call of the output layer after the forward pass"):
            model.lm_head(hidden)
        with torch.no_grad():
            logits = model.lm_head(hidden)
        head, target = model.lm_head, torch.full_like(given["labels"], 5)
        early = gated_linear(hidden, head.weight, head.bias, target, gated.gating.gates(target))
        assert early.equal(logits)
        found = gradients(model, early.logsumexp(-1).sum())["lm_head.weight"].any(1)
        assert found.sum() == (1 if gates is not None and not expected.any() else VOCABULARY)
    assert model.eval().lm_head(hidden).equal(logits)


class TwoHeads(GPT2LMHeadModel):
    """Predicts two tokens ahead too, by `second`."""

    def forward(self, input_ids, labels):
        features = self.transformer(input_ids).last_hidden_state
        logits, ahead = self.lm_head(features), self.second(features.tanh())
        further = F.cross_entropy(ahead[:, :-2].flatten(0, 1), labels[:, 2:].flatten())
        return CausalLMOutput(self.loss_function(logits, labels, VOCABULARY) + further, logits)


def test_a_second_head_has_its_own_weight():
    """Which is not gated; the first one is. Its targets are not those of the output layer."""
    rows = {}
    for is_gated in (False, True):
        model, given = gpt2(), batch()
        model.__class__, model.second = TwoHeads, nn.Linear(16, VOCABULARY, bias=False)
        model.second.load_state_dict({"weight": model.lm_head.weight})
        if is_gated:
            gated = gated_head(model)
            model(**given)
            gated.commit_update()
        rows[is_gated] = gradients(model, model(**given).loss)
    assert rows[True]["second.weight"].equal(rows[False]["second.weight"])
    tied = "transformer.wte.weight"
    assert not torch.allclose(rows[True][tied], rows[False][tied])

    model = gpt2()
    model.__class__, model.second = TwoHeads, model.lm_head
    gated_head(model)
    with pytest.raises(UserError, match="second call of the output layer in a forward pass"):
        model(**given)
    model = untied()
    spectral = parametrizations.spectral_norm(model.model.layers[0].self_attn.q_proj)
    before = copy.deepcopy(spectral.state_dict())
    gated_head(model)
    assert_close(spectral.state_dict(), before, rtol=0, atol=0)  # to read its weight changes it
    model = gpt2()
    model.second = nn.Linear(16, VOCABULARY, bias=False)
    model.second.weight = model.lm_head.weight
    with pytest.raises(UserError, match="found the weight of the output layer in second"):
        gated_head(model)


def test_labels_of_weight_0_are_told(caplog):
    """They are counted, though no row of W is pulled where they are."""
    for weight, told in ((1, 0), (0, 1)):
        model, given = gpt2(), batch()
        gated_head(model)
        weights = torch.ones(VOCABULARY).index_fill(0, torch.tensor([7]), weight)
        logits, target = model(**given).logits[:, :-1].flatten(0, 1), given["labels"][:, 1:]
        F.cross_entropy(logits, target.flatten(), weights).backward()
        assert caplog.text.count(f"found {(target == 7).sum()} labels without a gradient") == told


def test_labels_given_by_position():
    model, given = gpt2(), batch(ignored=[(1, 4)])
    gated = gated_head(model)
    model(given["input_ids"], *[None] * 7, given["labels"]).loss.backward()
    target = given["labels"][:, 1:]
    counts = target[target != -100].bincount(minlength=VOCABULARY)
    assert gated.gating.counter.current.equal(counts)


@pytest.mark.parametrize("is_shifted", [False, True])
def test_labels_of_the_last_positions(is_shifted):
    """Against literal gates."""
    model, given = untied().double(), batch(ignored=[(1, 9)])
    kept, target = given["labels"][:, -5:], F.pad(given["labels"], (0, 1), value=-100)[:, -5:]
    gated, features = gated_head(model), []
    model(**batch(seed=1))
    gated.commit_update()
    gates = gated.gating.gates(None)
    if is_shifted:  # of a text that goes on with a rare token
        target[:, -1] = gates.g1.argmin()
    more = {"shift_labels": target.contiguous()} if is_shifted else {}
    model.lm_head.register_forward_pre_hook(lambda layer, given: features.append(given[0].detach()))
    model(given["input_ids"], labels=kept, logits_to_keep=5, **more).loss.backward()
    weight, found = model.lm_head.weight.detach().requires_grad_(), model.lm_head.weight.grad
    loss = naive_gated_cross_entropy(features[0], weight, target, gates=gates)
    (loss / (target != -100).sum()).backward()
    assert_close(found, weight.grad, rtol=1e-6, atol=1e-7)  # the loss is in float32


def test_a_state_is_restored(caplog):
    """That of a method without counts leaves the window empty."""
    first, second, third = (gated_head(gpt2()) for _ in range(3))
    without = gated_head(gpt2(), AgpsGating, counts=torch.arange(VOCABULARY), rare_rank=9)
    first.model(**batch())
    first.commit_update()
    second.load_state_dict(first.state_dict())
    counters = [one.gating.counter for one in (first, second)]
    assert counters[1].updates == 1 and counters[1].appearances.equal(counters[0].appearances)
    assert "found no counts" not in caplog.text
    third.load_state_dict(without.state_dict())
    assert third.gating.counter.updates == 0 and "found no counts of its rule" in caplog.text
    with pytest.raises(ValueError, match="over 61 tokens, got 7"):
        third.load_state_dict(gated_head(gpt2(vocab_size=7)).state_dict())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("trained", {"modules_to_save": ["lm_head"]}),
        ("trained", {"target_parameters": ["lm_head.weight"]}),
        ("another adapter", {"modules_to_save": ["lm_head"]}),
        ("frozen", {}),
        ("frozen", {"target_modules": ["q_proj", "lm_head"]}),
    ],
)
def test_peft(kind, options):
    """The copy of the output layer that trains is gated, and a W that LoRA changes; without one, a
    line says so."""
    peft = pytest.importorskip("peft", reason="needs peft: pip install peft==0.21.2")
    options = {"target_modules": ["q_proj"], "init_lora_weights": False, **options}
    model = peft.get_peft_model(untied(), peft.LoraConfig(**options)).train()
    if kind == "another adapter":
        model.add_adapter("second", peft.LoraConfig(target_modules=["q_proj"]))
        model.set_adapter("second")
    if kind != "trained":
        gated_head(model)
        with pytest.raises(UserError, match="modules_to_save of the active adapter"):
            model(**batch())
        return
    own = model(**batch()).loss
    expected = gradients(model, own)
    gated = gated_head(model)
    for seed in (1, 0):
        loss = model(**batch(seed=seed)).loss
        found = gradients(model, loss)
        gated.commit_update()
    assert loss == own
    trained = [name for name in found if "lm_head" in name]
    assert trained and not any(found.pop(name).equal(expected.pop(name)) for name in trained)
    assert_close(found, expected, rtol=0, atol=0)
