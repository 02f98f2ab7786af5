"""F²-Softmax as the output layer of a causal language model of Hugging Face transformers."""

from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..checkpoints.transformers_model import report_without
from ..errors import UserError
from .factorized_softmax import FactorizedSoftmax

__all__ = ["factorize_head", "load_factorized"]

Model = TypeVar("Model", bound=PreTrainedModel)


def factorize_head(model: PreTrainedModel, class_of_token: Tensor) -> FactorizedSoftmax:
    """Replaces the output layer of a model by the frequency-factorized one of Choi et al. (2020), and returns it.

    W is kept, with its tie to the input embedding where there is one, and the class embedding U is new. The model then
    returns log-probabilities in place of logits, so that evaluation and `generate` work as before. Train it with
    `GatedLoss(model, "mle")`, made after this, which computes the loss at a fraction of the full softmax's cost.

    Args:
        model: a causal language model that ends in an `nn.Linear` without bias.
        class_of_token: (V,) int64 in [0, C), the class of each token; from `f2.mefmax` of the training counts.
    """
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear or head.bias is not None:
        head_type = "one with a bias" if type(head) is nn.Linear else type(head).__name__
        raise UserError(f"factorize_head: found {head_type} in {type(model).__name__}; expected a plain nn.Linear")
    if len(class_of_token) != head.weight.size(0):
        raise UserError(f"factorize_head: found classes of {len(class_of_token)} tokens; expected {len(head.weight)}")
    layer = FactorizedSoftmax(class_of_token.to(head.weight.device), head.weight.size(1), weight=head.weight)
    model.set_output_embeddings(layer.to(head.weight))
    return layer


def load_factorized(model_class: type[Model], folder: str | Path) -> Model:
    """Loads a model with a factorized output layer from where its `save_pretrained` has saved it, not in shards.

    `from_pretrained` alone builds the output layer of the configuration, which knows nothing of classes. `model_class`
    is the one that has it, e.g. `GPT2LMHeadModel`.
    """
    path = Path(folder) / "model.safetensors"
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"load_factorized: cannot read {path}: {error}") from error
    classes = [name for name in state if name.endswith(".class_of_token")]
    if len(classes) != 1:
        raise UserError(f"load_factorized: found no factorized output layer in {path}; use from_pretrained")
    loaded = set(state)
    with report_without(loaded):
        model = model_class.from_pretrained(folder)
        factorize_head(model, state[classes[0]].round().long())
        loaded -= {*model.load_state_dict(state, strict=False).unexpected_keys}  # tied weights are in the file once
    return model
