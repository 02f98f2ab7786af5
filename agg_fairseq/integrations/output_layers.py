"""An output layer that transformers lacks, with a fixed log-unigram bias; counts."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.transformers_model import PretrainedModel
from ..errors import UserError
from ..functional import log_unigram, whole_counts

LOADING_OPTIONS = ("dtype", "torch_dtype", "quantization_config")
"""Options of `from_pretrained` itself, though a configuration has such attributes too."""
IGNORED_LABEL = -100  # label of the positions without a target


def label_counts(
    dataset: Iterable[Mapping[str, Any]],
    vocabulary: int,
    collator: Callable[[list[Any]], Mapping[str, Any]] | None = None,
    *,
    shifted: bool = True,
) -> Tensor:
    """Counts each token as a target in a dataset, (V,) int64.

    Args:
        dataset: examples, or batches of them as of a DataLoader, with `labels` or else `input_ids`.
            −100 is no target; of `input_ids`, nor is what an `attention_mask` leaves out.
        vocabulary: V.
        collator: that of the training, if it makes the labels: it may leave targets out, as
            `DataCollatorForLanguageModeling` does with each end of text that is also the padding.
        shifted: the model compares the logits at a position with the next label, as causal language
            models do, so that the first label of a sequence is no target; False for masked models
            and those with an encoder, such as T5, which compare with that of the same position.

    Raises:
        UserError: `shifted`, but the labels are other tokens than the inputs.

    Examples:
        >>> padded = {"input_ids": [0, 2, 1, 1], "attention_mask": [1, 1, 0, 0]}
        >>> batch = {"labels": torch.tensor([[0, -100, 3], [1, 2, 2]])}
        >>> label_counts([batch, padded], vocabulary=4).tolist()
        [0, 0, 3, 1]
    """
    counts = torch.zeros(vocabulary, dtype=torch.int64)
    for example in dataset:
        if collator is not None:
            example = collator([example])
        if "labels" in example:
            tokens = torch.as_tensor(example["labels"])
            if shifted and "input_ids" in example:
                inputs = torch.as_tensor(example["input_ids"])
                if (
                    inputs.shape != tokens.shape
                    or ((inputs != tokens) & (tokens != IGNORED_LABEL)).any()
                ):
                    raise UserError(
                        "found labels that are other tokens than the inputs; expected shifted=False "
                        "for a model that does not shift its labels, such as T5, BART or BERT"
                    )
        else:
            tokens = torch.as_tensor(example["input_ids"])
            if "attention_mask" in example:
                is_padding = torch.as_tensor(example["attention_mask"]) == 0
                tokens = tokens.masked_fill(is_padding, IGNORED_LABEL)
        tokens = tokens[..., 1:] if shifted else tokens
        counts += torch.bincount(tokens[tokens != IGNORED_LABEL].cpu(), minlength=vocabulary)
    return counts


def add_log_unigram(model: Any, counts: Tensor) -> None:
    """Gives the output layer of a model a bias that is not trained: the log of the training
    frequencies.

    `save_pretrained` saves it; `load_pretrained` loads the folder, since `from_pretrained` of most
    classes leaves the bias out. A token that `resize_token_embeddings` adds gets the least of it.
    In bfloat16 it is rounded to a multiple of 1/16. Logits that the model scales or caps afterwards
    (Granite, Cohere, Gemma 2) are not those that the bias is meant for.

    Args:
        model: of transformers, ending in an `nn.Linear` without bias.
        counts: (V,) training counts, as of `label_counts`.

    Reference: Meister et al. (2022), "A Natural Bias for Language Generation Models".
    """
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear or head.bias is not None:
        found = "one with a bias" if type(head) is nn.Linear else type(head).__name__
        raise UserError(
            f"found {found} as output layer of {type(model).__name__}; expected nn.Linear, no bias"
        )
    _fix_bias(model, log_unigram(whole_counts(counts, len(head.weight))))


def _fix_bias(model: Any, bias: Tensor) -> None:
    """Gives the output layer of a model a bias (V,) that is a buffer, which nothing trains."""
    head = model.get_output_embeddings()
    del head.bias
    head.register_buffer("bias", bias.to(head.weight))
    model._get_resized_lm_head = _ResizedHead(model)


class _ResizedHead:
    """Stands in the place of a model's method, which would make a parameter of the bias."""

    def __init__(self, model: Any) -> None:
        self.model = model  # of a copy of the model: the copy

    def __call__(self, head: nn.Linear, *arguments: Any, **options: Any) -> nn.Linear:
        bias = head.bias
        resized = type(self.model)._get_resized_lm_head(self.model, head, *arguments, **options)
        del resized.bias
        added = max(0, len(resized.weight) - len(bias))
        bias = torch.cat([bias, bias.min().expand(added)])[: len(resized.weight)]
        resized.register_buffer("bias", bias)
        return resized


def load_pretrained(path: str | Path, **options: Any) -> Any:
    """`from_pretrained` of the model's own class, with the log-unigram bias that is
    saved there; UserError if a parameter is missing, which transformers would make up.

    Args:
        path: of a folder that `save_pretrained` wrote, or of a file of safetensors or index in it.
        **options: of `from_pretrained`, such as `dtype`, `use_cache` or `output_loading_info`.
    """
    saved, wants_info = PretrainedModel(path), options.pop("output_loading_info", False)
    saved.check()
    model_class, config = type(saved.skeleton), saved.skeleton.config
    head = saved.skeleton.get_output_embeddings()
    name = next((name for name, one in saved.skeleton.named_modules() if one is head), "")
    for option in list(options):
        if hasattr(config, option) and option not in LOADING_OPTIONS:
            setattr(config, option, options.pop(option))
    config.transformers_weights = saved.path.name  # the file to load, as transformers names it
    ignored = model_class._keys_to_ignore_on_load_unexpected
    # what the class lacks is loaded below
    model_class._keys_to_ignore_on_load_unexpected = [*(ignored or ()), r"\.bias"]
    try:
        model, info = model_class.from_pretrained(
            saved.path.parent, config=config, output_loading_info=True, **options
        )
    finally:
        model_class._keys_to_ignore_on_load_unexpected = ignored
    if info["missing_keys"]:
        raise UserError(
            f"{saved}: found no {sorted(info['missing_keys'])[0]}; expected all parameters of a "
            f"{model_class.__name__}"
        )
    del config.transformers_weights, model.config.transformers_weights
    layer = model.get_output_embeddings()
    if f"{name}.bias" in saved and layer.bias is None:
        _fix_bias(model, saved.tensor(f"{name}.bias"))
    return (model, info) if wants_info else model
