"""Every decoder, encoder-decoder and masked language model of transformers that can be made small is
gated: the loss and the gradients are its own but for literal gates on the output embedding."""

import random
import warnings

import numpy as np
import pytest
import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from agg_fairseq.errors import UserError
from agg_fairseq.functional import Gates
from tests.small_transformers import VOCABULARY, gated_head, gradients

SIZES = {  # by the names that configurations have for them
    "vocab_size": VOCABULARY, "hidden_size": 32, "n_embd": 32, "d_model": 32, "word_embed_proj_dim": 32,
    "intermediate_size": 40, "ffn_dim": 40, "decoder_ffn_dim": 40, "moe_intermediate_size": 24,
    "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "n_layers": 2, "decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "num_heads": 4, "n_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "n_positions": 64,
    "num_experts": 2, "num_local_experts": 2, "n_routed_experts": 2, "num_experts_per_tok": 1, "n_shared_experts": 1,
    "logits_scaling": 4.0, "logit_scale": 0.25, "lm_head_multiplier": 0.5, "final_logit_softcapping": 0.5,
    "logits_soft_cap": 0.5, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3,
    "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 40, "num_decoder_layers": 2, "d_ff": 40,
    "d_kv": 8, "src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY,
    "dim": 32, "hidden_dim": 40, "embedding_size": 32, "num_encoder_layers": 2, "num_encoder_attention_heads": 4,
    "num_decoder_attention_heads": 4, "max_source_positions": 8, "max_target_positions": 64, "num_mel_bins": 4,
    "sparse_prediction": False, "encoder_num_hidden_layers": 2, "encoder_num_attention_heads": 4,
    "decoder_num_hidden_layers": 2, "decoder_num_attention_heads": 4,
}  # fmt: skip
MOST_PARAMETERS = 500_000
PICTURES = {  # of 8 x 8 pixels: options of models that read them
    "Florence2": {"vision_config": {
        "depths": (1, 1), "patch_size": (7, 3), "patch_stride": (4, 2), "patch_padding": (3, 1),
        "patch_prenorm": (False, True), "embed_dim": (16, 32), "num_heads": (2, 2), "num_groups": (2, 2),
        "window_size": 2, "projection_dim": 32, "drop_path_rate": 0,
    }, "image_token_id": 0},
    "Blip2": {
        "vision_config": {**SIZES, "image_size": 8, "patch_size": 4},
        "qformer_config": {**SIZES, "encoder_hidden_size": 32, "cross_attention_frequency": 1},
        "num_query_tokens": 2, "image_token_index": 0,
    },
}  # fmt: skip


def small(configuration):
    given = {name: value for name, value in SIZES.items() if hasattr(configuration(), name)}
    try:
        config = configuration(**given)
    except Exception:  # some have a head_dim that follows from the rest
        config = configuration(
            **{name: value for name, value in given.items() if name != "head_dim"}
        )
    config.decoder_start_token_id = 2
    return config


def build(config, model_class):
    """A small model, or an error of any kind where the sizes do not fit together."""
    # without memory: one with sizes by other names may be as large as the real one
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in model_class(config).parameters())
    if size > MOST_PARAMETERS:
        raise ValueError("sizes by other names")
    torch.manual_seed(0)
    return model_class(config).train()


def step(model, batch=0):
    """The loss and its gradients, with the same dropout at each call; H and dL/dlogits where the
    output layer is called."""
    generator = torch.Generator().manual_seed(batch)
    tokens = torch.randint(4, VOCABULARY, (2, 16), generator=generator)
    labels = tokens.clone()
    labels[0, :4] = -100
    given = {"input_ids": tokens, "labels": labels}
    if model.config.is_encoder_decoder:
        given["labels"] = labels[:, 3:].contiguous()
        if model.main_input_name == "input_features":
            del given["input_ids"]
            given["input_features"] = torch.randn(2, 4, 16, generator=generator)
        if model.main_input_name == "input_values":  # a wave
            del given["input_ids"]
            given["input_values"] = torch.randn(2, 2000, generator=generator)
    if hasattr(model.config, "vision_config"):
        tokens[:, :2] = 0  # which a picture replaces
        given["pixel_values"] = torch.randn(2, 3, 8, 8, generator=generator)
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(1)
    seen = {}

    def listen(head, inputs, logits):
        seen["features"] = inputs[0].detach().flatten(0, -2) / getattr(head, "width", 1)
        logits.register_hook(lambda z: seen.update(z=z.detach().flatten(0, -2)))

    with model.get_output_embeddings().register_forward_hook(listen):
        loss = model(**given).loss
    return loss.detach(), gradients(model, loss), seen


def targets(z):
    """Those by which a likelihood has dL/dlogits (N, V)."""
    return z.argmin(1).where(z.any(1), -100)


def difference(found, expected):
    """The largest, relative to the largest number of each tensor."""
    assert found.keys() == expected.keys()
    return max(
        ((found[name] - one).abs().max() / one.abs().max().clamp(min=1e-3)).item()
        for name, one in expected.items()
    )


def compared(model, target=None):
    """The largest differences of the loss and the gradients from those of the model itself with
    gates of 1, and of the gradients from literal gates with the counts of another batch."""
    step(model)  # BigBird chooses another attention in its first
    loss, own, seen = step(model)
    z, head = seen["z"], model.get_output_embeddings()
    y = targets(z) if target is None else target
    other = targets(step(model, 1)[2]["z"])
    gated = gated_head(model, excluded=torch.zeros(VOCABULARY).bool())
    ones, counter = torch.ones(VOCABULARY), gated.gating.counter
    by_counts = gated.gating.gates
    gated.gating.gates = lambda target: Gates(ones.bool(), ones, ones)
    step(model, 1)
    gated.commit_update()
    if target is None:
        assert counter.appearances.equal(other[other >= 0].bincount(minlength=VOCABULARY))
    found, plain, _ = step(model)
    gated.gating.gates = by_counts
    gated_step = step(model)[1]
    gated.remove()
    gates = by_counts(None)
    is_rare = gates.rare[y.clamp(min=0)] & (y >= 0)
    factors = torch.where(is_rare[:, None], gates.g2, gates.g1)
    factors[(y >= 0).nonzero().squeeze(1), y[y >= 0]] = 1
    change = (factors - 1) * z
    head(seen["features"])  # which makes W anew, where it is computed
    outputs, gradient = [head.weight], [change.t() @ seen["features"]]
    if getattr(head, "bias", None) is not None:
        outputs, gradient = [*outputs, head.bias], [*gradient, change.sum(0)]
    named = [(name, one) for name, one in model.named_parameters() if name in own]
    changes = torch.autograd.grad(outputs, [one for _, one in named], gradient, allow_unused=True)
    for (name, _), one in zip(named, changes, strict=True):
        own[name] = own[name] if one is None else own[name] + one
    literal = difference(gated_step, own)
    assert difference(plain, own) > 1e-3, "gates that change nothing"
    return (found - loss).abs().item(), difference(plain, step(model)[1]), literal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "least"),
    [("CAUSAL_LM", 115), ("SEQ_TO_SEQ_CAUSAL_LM", 18), ("SPEECH_SEQ_2_SEQ", 3), ("MASKED_LM", 40)],
)
def test_every_model(family, least):
    warnings.simplefilter("ignore")
    results = {}
    for kind, names in getattr(modeling_auto, f"MODEL_FOR_{family}_MAPPING_NAMES").items():
        name = names if isinstance(names, str) else names[0]
        try:
            model = build(small(CONFIG_MAPPING[kind]), getattr(transformers, name))
            seen = step(model)[2]
        except Exception:  # sizes that do not fit together, or a package that is missing
            continue
        if seen:
            results[name] = compared(model)
        else:  # MobileBERT multiplies by the weight of a layer that it does not call
            gated_head(model)
            with pytest.raises(UserError, match="has not called its output layer"):
                step(model)
    print(results)
    assert len(results) >= least
    assert all(loss <= 1e-6 and max(others) <= 1e-6 for loss, *others in results.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "text"), [("Florence2", "bart"), ("Blip2", "opt"), ("Blip2", "t5")]
)
def test_models_of_pictures(kind, text):
    config = getattr(transformers, f"{kind}Config")(
        text_config=small(CONFIG_MAPPING[text]).to_dict(), **PICTURES[kind]
    )
    model = build(config, getattr(transformers, f"{kind}ForConditionalGeneration"))
    assert max(compared(model)) <= 1e-6
