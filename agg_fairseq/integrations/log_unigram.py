"""Loads the log-unigram bias that `save_pretrained` saves and `from_pretrained` of most classes leaves out."""

from pathlib import Path
from typing import Any

from torch import nn

from ..checkpoints.transformers_model import PretrainedModel, report_without


def load_pretrained(model_class: Any, folder: str | Path, **options: Any) -> Any:
    """`model_class.from_pretrained(folder, **options)`, with the bias of the output layer that is saved there.

    `model_class` is that of the model, or `AutoModelForCausalLM`.
    """
    loaded: set[str] = set()
    with report_without(loaded):
        model, report = model_class.from_pretrained(folder, output_loading_info=True, **options)
        head = model.get_output_embeddings()
        name = next((f"{name}.bias" for name, module in model.named_modules() if module is head), None)
        if name in report["unexpected_keys"]:
            bias = PretrainedModel(folder).tensor(name)
            head.bias = nn.Parameter(bias.to(head.weight), requires_grad=False)
            loaded.add(name)
    return model
