"""Models of fairseq whose output layer was changed in an instance, or by a fork: the loss and the
gradients of fairseq's own criterion, or a refusal in one line."""

import pytest
import torch
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.quant_noise import quant_noise
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from agg_fairseq.fairseq_plugin import output_layer as output_layers
from tests.commands import one_line
from tests.small_trainings import F2_LM, FAMILIES, LM, MT, batches, build, configuration


def instance(name, change):
    """Sets a method on a part of the model, over its own."""

    def changed(part):
        original = getattr(part, name)
        setattr(part, name, lambda *given, **options: change(original(*given, **options)))

    return changed


def half(output):
    return (output[0] / 2, *output[1:])


def cooler(log_probs):
    return (log_probs / 2).log_softmax(-1)


def subclass(decoder):
    def get_normalized_probs(self, *given, **options):
        return cooler(type(self).__base__.get_normalized_probs(self, *given, **options))

    methods = {"get_normalized_probs": get_normalized_probs}
    decoder.__class__ = type("Decoder", (type(decoder),), methods)


def checkpointed(part):
    original = part.forward
    part.forward = lambda *given: checkpoint(original, *given, use_reentrant=False)


OF_LAYER = {
    "forward hook": lambda layer: layer.register_forward_hook(
        lambda part, given, output: output / 2
    ),
    "forward pre-hook": lambda layer: layer.register_forward_pre_hook(
        lambda _, given: given[0] * 2
    ),
    "forward of the layer": instance("forward", lambda logits: logits / 2),
    "weight_norm": weight_norm,
    "spectral_norm": spectral_norm,
    "parametrized weight_norm": parametrizations.weight_norm,
    "quant_noise": lambda layer: quant_noise(layer, 0.5, 8),
}
OF_DECODER = {
    "hook on the decoder": lambda decoder: decoder.register_forward_hook(lambda p, i, o: half(o)),
    "forward of the decoder": instance("forward", half),
    "output_layer of the decoder": instance("output_layer", lambda logits: logits / 2),
    "get_normalized_probs": instance("get_normalized_probs", cooler),
    "get_normalized_probs of a class": subclass,
}
AGAIN, READ = "or does it again in the backward pass", "changes each time that it is read"
REFUSED = {
    "fairseq's checkpoint_wrapper": (checkpoint_wrapper, AGAIN),
    "torch's checkpoint": (checkpointed, AGAIN),
    "parametrized spectral_norm": (parametrizations.spectral_norm, READ),
}
BASES = {"transformer_lm": LM, "lstm_lm": FAMILIES["lstm_lm"], "transformer": MT}


def make(data, base, way, name="mle"):
    """A criterion and a model, changed, and its batches."""
    cfg, task, model, criterion = build(data, "--criterion", name, base=base)
    layer = output_layers.output_layer(model)
    if way in OF_DECODER:
        OF_DECODER[way](model.decoder)
    elif way in OF_LAYER:
        OF_LAYER[way](layer)
    elif way in REFUSED:
        REFUSED[way][0](layer)
    return criterion, model, batches(cfg, task)[:2], task


def results(data, base, way, name):
    criterion, model, samples, task = make(data, base, way)
    if name != "mle":
        criterion = task.build_criterion(configuration(data, "--criterion", name).criterion)
    model.train(), criterion.train()
    torch.manual_seed(7)
    found = []
    for sample in samples:
        model.zero_grad()
        loss = criterion(model, sample)[0]
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        found.append((loss.detach(), gradients))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.001 * gradient
    return found


def check(data, base, way):
    found, expected = (results(data, base, way, name) for name in ("mle", "cross_entropy"))
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.grid(5)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("way", [*OF_LAYER, *OF_DECODER])
def test_the_loss_is_that_of_the_changed_model(lm_data, mt_data, base, way):
    """In two updates: the first decides how the model is trained."""
    check(mt_data if base == "transformer" else lm_data, BASES[base], way)


@pytest.mark.parametrize("method", ["output_layer", "forward", "get_normalized_probs"])
def test_the_loss_is_that_of_an_edited_fairseq(lm_data, method, monkeypatch):
    """Which no look at classes and modules could tell."""
    original = getattr(TransformerDecoderBase, method)

    def edited(self, *given, **options):
        output = original(self, *given, **options)
        changes = {"forward": half, "get_normalized_probs": cooler}
        return changes.get(method, lambda logits: logits / 2)(output)

    edited.__module__ = original.__module__
    monkeypatch.setattr(TransformerDecoderBase, method, edited)
    own = (TransformerDecoderBase.output_layer,)
    monkeypatch.setattr(output_layers, "OWN_OUTPUT_LAYERS", own)
    assert output_layers.passes_features(make(lm_data, LM, None)[1])
    check(lm_data, LM, None)


def test_a_batch_longer_than_the_table_of_positions(lm_data):
    """The model makes another table in its forward pass, here that of the comparison."""
    check(lm_data, (*LM, "--add-bos-token"), None)


@pytest.mark.parametrize("way", REFUSED)
def test_a_layer_that_is_not_called_once_is_refused(lm_data, way, capsys):
    criterion, model, samples, _ = make(lm_data, LM, way)
    assert REFUSED[way][1] in one_line(capsys, criterion, model, samples[0])


def test_what_is_not_normalized_is_refused(lm_data, capsys):
    criterion, model, samples, _ = make(lm_data, LM, None)
    instance("get_normalized_probs", lambda log_probs: log_probs / 2)(model.decoder)
    assert "gives other sums than 1" in one_line(capsys, criterion, model, samples[0])


def test_f2_is_refused_in_a_model_that_changes_its_output(lm_data, capsys):
    criterion, model, samples, _ = make(lm_data, F2_LM, "forward of the decoder", "f2_softmax")
    error = one_line(capsys, criterion, model, samples[0])
    assert "which changes what its factorized output layer gives" in error


@pytest.mark.parametrize(
    ("name", "way"), [("freeze_rare", "weight_norm"), ("freeze_rare", "frozen")]
)
def test_rows_that_cannot_be_frozen_are_refused(lm_data, name, way, capsys):
    criterion, model, samples, _ = make(lm_data, LM, way, name)
    if way == "frozen":
        model.decoder.output_projection.weight.requires_grad_(False)
    criterion.train().start_update(0)
    error = one_line(capsys, criterion, model.train(), samples[0])
    assert "whose output embedding is computed or does not train" in error
