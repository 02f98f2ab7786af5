"""Every decoder of transformers that can be made small is trained as it should be, or refused."""

import random
import warnings
from collections import Counter

import numpy as np
import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from agg_fairseq.errors import UserError
from agg_fairseq.integrations.transformers import GatedHead
from tests.small_transformers import VOCABULARY, gradients

SIZES = {  # by the names that configurations have for them
    "vocab_size": VOCABULARY, "hidden_size": 32, "n_embd": 32, "d_model": 32, "word_embed_proj_dim": 32,
    "intermediate_size": 40, "ffn_dim": 40, "decoder_ffn_dim": 40, "moe_intermediate_size": 24,
    "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "n_layers": 2, "decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "num_heads": 4, "n_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "n_positions": 64,
    "num_experts": 2, "num_local_experts": 2, "n_routed_experts": 2, "num_experts_per_tok": 1, "n_shared_experts": 1,
    "logits_scaling": 4.0, "logit_scale": 0.25, "lm_head_multiplier": 0.5, "final_logit_softcapping": 0.5,
    "logits_soft_cap": 0.5, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
MOST_PARAMETERS = 500_000


def build(configuration, model_class):
    """A small model, or an error of any kind where the sizes do not fit together."""
    given = {name: value for name, value in SIZES.items() if hasattr(configuration(), name)}
    try:
        config = configuration(**given)
    except Exception:  # some have a head_dim that follows from the rest
        config = configuration(
            **{name: value for name, value in given.items() if name != "head_dim"}
        )
    # without memory: one with sizes by other names may be as large as the real one
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in model_class(config).parameters())
    if size > MOST_PARAMETERS:
        raise ValueError("sizes by other names")
    torch.manual_seed(0)
    return model_class(config).train()


def step(model):
    """The loss and its gradients, with the same dropout at each call."""
    tokens = torch.randint(4, VOCABULARY, (2, 16), generator=torch.Generator().manual_seed(0))
    labels = tokens.clone()
    labels[0, :4] = -100
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(1)
    loss = model(input_ids=tokens, labels=labels).loss
    return loss.detach(), gradients(model, loss)


def compared(model, loss, expected):
    """One word: is a training step with `GatedHead` that of the model itself?"""
    try:
        gated = GatedHead(model, "mle")
        found, found_gradients = step(model)
        gated.remove()
    except UserError:
        return "refused"
    if found_gradients.keys() != expected.keys() or not torch.allclose(found, loss, rtol=1e-4):
        return "different"
    for name, gradient in expected.items():
        distance = (found_gradients[name] - gradient).abs().max()
        if not distance <= 1e-3 * gradient.abs().max() + 1e-6:  # also of NaN
            return "different"
    return "equal"


@pytest.mark.slow
def test_every_decoder():
    warnings.simplefilter("ignore")
    training = {}
    for kind, names in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        name = names if isinstance(names, str) else names[0]
        try:
            model = build(CONFIG_MAPPING[kind], getattr(transformers, name))
            step(model)  # BigBird chooses another attention in its first
            own = step(model)
        except Exception:  # sizes that do not fit together, or a package that is missing
            continue
        training[name] = compared(model, *own)
    print(training)
    counted = Counter(training.values())
    assert counted["equal"] >= 100 and counted["refused"] >= 10 and not counted["different"]
