"""Models of fairseq whose output layer was changed in an instance, or by a fork: the loss and the
gradients of fairseq's own criterion, or a refusal in one line."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.quant_noise import quant_noise
from torch.nn import functional
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from agg_fairseq.fairseq_plugin import output_layer as output_layers
from tests.commands import one_line
from tests.small_trainings import F2_LM, FAMILIES, LM, MT, batches, build, count_targets


def instance(name, change):
    """Sets a method on a part of the model, over its own."""

    def changed(part):
        original = getattr(part, name)
        setattr(part, name, lambda *given, **options: change(original(*given, **options)))

    return changed


def half(output):
    if torch.is_tensor(output):
        return output / 2
    return half(output[0]), *output[1:]


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
    "forward hook": lambda layer: layer.register_forward_hook(lambda p, i, output: half(output)),
    "forward pre-hook": lambda layer: layer.register_forward_pre_hook(lambda p, i: half(i)),
    "forward of the layer": instance("forward", half),
    "weight_norm": weight_norm,
    "spectral_norm": spectral_norm,
    "parametrized weight_norm": parametrizations.weight_norm,
    "quant_noise": lambda layer: quant_noise(layer, 0.5, 8),
}


def scale(decoder):
    decoder.scale = torch.nn.Parameter(torch.tensor(3.0))
    instance("output_layer", lambda logits: decoder.scale * logits)(decoder)


def mask(logits):
    penalty = torch.zeros(logits.shape[1:])
    penalty[1:, 60] = -1e4
    return logits + penalty


def own_logits(change):
    """Makes the logits of the features and of the layer that holds W."""

    def changed(decoder):
        layer = output_layers.output_layer(SimpleNamespace(decoder=decoder))
        decoder.output_layer = lambda features, **options: change(features, layer)

    return changed


OF_DECODER = {
    "hook on the decoder": lambda decoder: decoder.register_forward_hook(lambda p, i, o: half(o)),
    "forward of the decoder": instance("forward", half),
    "in place": instance("forward", lambda output: (output[0].clamp_(-1, 1), *output[1:])),
    "output_layer of the decoder": instance("output_layer", half),
    "soft cap": instance("output_layer", torch.tanh),
    "learned scale": scale,
    "mask": instance("output_layer", mask),
    "functional": own_logits(lambda h, layer: functional.linear(h, layer.weight, layer.bias)),
    "get_normalized_probs": instance("get_normalized_probs", cooler),
    "get_normalized_probs of a class": subclass,
}
BASES = {"transformer_lm": LM, "lstm_lm": FAMILIES["lstm_lm"], "transformer": MT}


def make(name, data, base, of_layer=None, of_decoder=None):
    """The parts of a training whose output layer or decoder is changed, and two batches."""
    training = build(data, f"--criterion {name}", base=base)
    if of_layer is not None:
        of_layer(output_layers.output_layer(training.model))
    if of_decoder is not None:
        of_decoder(training.model.decoder)
    return training, batches(training)[:2]


FROZEN = "freeze_rare --freeze-parts bc"


def check(name, *changed):
    """Compares losses and gradients with those of fairseq, in two updates: the first decides how
    the model is trained. Gates change the gradients of W alone."""
    results, kept = [], slice(None)
    for one in (name, "cross_entropy"):
        (_, task, model, criterion), samples = make(one, *changed)
        model.train(), criterion.train()
        torch.manual_seed(7)
        layer, found = output_layers.output_layer(model), []
        for sample in samples:
            model.zero_grad()
            if one == FROZEN:
                criterion.start_update(0)
                kept = ~criterion.rare
            loss = criterion(model, sample)[0]
            loss.backward()
            gradients = []
            for parameter in model.parameters():
                is_gated = any(parameter is own for own in layer.parameters())
                gradients.append(parameter.grad[kept] if is_gated else parameter.grad)
            if one == FROZEN:
                absent = (count_targets([sample], task.target_dictionary) == 0) & ~kept
                assert absent.any() and not layer.weight.grad[absent].any()
            found.append((loss.detach(), gradients))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter *= 0.999
        results.append(found)
    assert_close(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.grid(9)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("way", [*OF_LAYER, *OF_DECODER])
def test_the_loss_is_that_of_the_changed_model(data_for, base, way):
    """Gates are for weights that no layer computes."""
    is_gated = way in OF_DECODER and list(BASES).index(base) % 2 == len(way) % 2
    base = BASES[base]
    changes = OF_LAYER.get(way), OF_DECODER.get(way)
    check(FROZEN if is_gated else "mle", data_for(base), base, *changes)


@pytest.mark.parametrize("method", ["output_layer", "forward", "get_normalized_probs"])
def test_the_loss_is_that_of_an_edited_fairseq(lm_data, method, monkeypatch):
    """Which no look at classes and modules could tell."""
    original = getattr(TransformerDecoderBase, method)
    change = cooler if method == "get_normalized_probs" else half

    def edited(self, *given, **options):
        return change(original(self, *given, **options))

    edited.__module__ = original.__module__
    monkeypatch.setattr(TransformerDecoderBase, method, edited)
    own = (TransformerDecoderBase.output_layer,)
    monkeypatch.setattr(output_layers, "OWN_OUTPUT_LAYERS", own)
    assert output_layers.passes_features(build(lm_data).model)
    check("mle", lm_data, LM)


def test_a_batch_longer_than_the_table_of_positions(lm_data):
    """The model makes another table in its forward pass, here that of the comparison."""
    check("mle", lm_data, (*LM, "--add-bos-token"))


AGAIN = "does not multiply its features by its output embedding, or does it again in the backward"
OTHER = "which changes what its factorized output layer gives"
FIXED = "whose output embedding is computed or does not train"


@pytest.mark.parametrize(
    ("name", "of_layer", "of_decoder", "words"),
    [
        ("mle", checkpoint_wrapper, None, AGAIN),
        ("mle", checkpointed, None, AGAIN),
        ("mle", parametrizations.spectral_norm, None, "changes each time that it is read"),
        ("mle", None, own_logits(lambda h, layer: h @ layer.weight.t()), AGAIN),
        ("mle", None, own_logits(lambda h, layer: layer(h[:, 1:])), "do not fit the tar"),
        ("mle", None, instance("get_normalized_probs", half), "gives other sums than 1"),
        ("mle --adv-epsilon 0.1", None, OF_DECODER["soft cap"], "and --adv-epsilon 0.1"),
        ("f2_softmax", None, instance("forward", half), OTHER),
        ("freeze_rare", weight_norm, None, FIXED),
        ("freeze_rare", lambda layer: layer.requires_grad_(False), None, FIXED),
    ],
)
def test_changes_that_are_refused(lm_data, name, of_layer, of_decoder, words):
    base = F2_LM if name == "f2_softmax" else LM
    (_, _, model, criterion), samples = make(name, lm_data, base, of_layer, of_decoder)
    criterion.train().start_update(0)
    assert words in one_line(criterion, model.train(), samples[0])
