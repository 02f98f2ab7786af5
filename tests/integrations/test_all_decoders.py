"""Every decoder of transformers that can be made small: its own loss and gradients, or one line that refuses it."""

import random
import signal
import warnings
from collections import Counter

import numpy as np
import pytest
import torch

from tests.small_transformers import VOCABULARY

pytest.importorskip("transformers", reason="needs transformers 5: pip install '.[transformers]'")

from agg_fairseq.errors import UserError
from agg_fairseq.integrations.transformers import GatedLoss

SIZES = {  # by the names that configurations have for them
    "vocab_size": VOCABULARY, "hidden_size": 32, "n_embd": 32, "d_model": 32, "word_embed_proj_dim": 32,
    "intermediate_size": 40, "ffn_dim": 40, "decoder_ffn_dim": 40, "moe_intermediate_size": 24,
    "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "n_layers": 2, "decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "num_heads": 4, "n_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "n_positions": 64,
    "num_experts": 2, "num_local_experts": 2, "n_routed_experts": 2, "num_experts_per_tok": 1, "n_shared_experts": 1,
    "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
MOST_PARAMETERS = 5_000_000
SECONDS = 60


def build(configuration, model_class):
    """A small model, or an error of any kind where the sizes do not fit together."""
    given = {name: value for name, value in SIZES.items() if hasattr(configuration(), name)}
    try:
        config = configuration(**given)
    except Exception:  # some have a head_dim that follows from the rest
        config = configuration(**{name: value for name, value in given.items() if name != "head_dim"})
    torch.manual_seed(0)
    model = model_class(config).train()
    if sum(parameter.numel() for parameter in model.parameters()) > MOST_PARAMETERS:
        raise ValueError("sizes by other names")
    return model


def step(model):
    """The loss and its gradients, with the same dropout at each call."""
    tokens = torch.randint(4, VOCABULARY, (2, 16), generator=torch.Generator().manual_seed(0))
    labels = tokens.clone()
    labels[0, :4] = -100
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(1)
    model.zero_grad()
    loss = model(input_ids=tokens, labels=labels).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def compare(model_class, configuration):
    """One word, and what it is about."""
    try:
        model = build(configuration, model_class)
        step(model)  # BigBird chooses another attention in its first
        loss, gradients = step(model)
    except Exception as error:
        return "not built", type(error).__name__
    try:
        GatedLoss(model, "mle")
        found, found_gradients = step(model)
    except UserError as error:
        return "refused", str(error)
    if found_gradients.keys() != gradients.keys() or not torch.allclose(found, loss, rtol=1e-4):
        return "different", f"{found} in place of {loss}"
    for name, expected in gradients.items():
        if (found_gradients[name] - expected).abs().max() > 1e-3 * expected.abs().max() + 1e-6:
            return "different", name
    return "equal", ""


def too_long(*_):
    raise TimeoutError


@pytest.mark.slow
def test_all_decoders():
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, too_long)
    found = {}
    for kind, names in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        name = names if isinstance(names, str) else names[0]
        signal.alarm(SECONDS)
        try:
            found[name] = compare(getattr(transformers, name), CONFIG_MAPPING[kind])
        except (TimeoutError, ImportError) as error:
            found[name] = ("not built", type(error).__name__)
        finally:
            signal.alarm(0)
        print(name, *found[name], flush=True)
    counted = Counter(result for result, _ in found.values())
    print(counted)
    assert not {name: result for name, result in found.items() if result[0] == "different"}
    assert counted["equal"] >= 60 and counted["refused"] >= 10
