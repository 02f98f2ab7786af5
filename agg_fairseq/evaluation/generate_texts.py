"""Continuations of a split's prefixes by a language model, written as JSON Lines."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from tqdm import tqdm

from .. import decoding
from ..checkpoints.fairseq_checkpoint import Checkpoint
from ..checkpoints.output_embedding import check_finite
from ..data.binarized import count_tokens, load_dictionary
from ..errors import UserError, first_line
from ..files import atomic_write, check_writable
from ..result import Result
from .inputs import find_device


def generate_texts(
    model: Checkpoint,
    data: str | Path,
    output: str | Path,
    *,
    split: str = "test",
    prefix_length: int = 50,
    length: int = 100,
    max_texts: int | None = None,
    topk: int | None = None,
    seed: int = 1,
    f2_decoding: str | None = None,
    batch_size: int = 64,
    device: str | None = None,
) -> Result:
    """Continues the prefixes of a split with a language model, and writes a JSON object per line.

    The split is read as one stream of tokens, including its line ends, and cut into blocks of a prefix and its
    reference; an incomplete block at the end is dropped. Each prefix is continued by as many tokens as its reference
    has. `prefix`, `continuation` and `reference` contain tokens of the dictionary, separated by spaces.

    Args:
        model: a language model over the dictionary of `data`.
        output: texts to write.
        split: split to continue.
        prefix_length: tokens that the model is given.
        length: tokens of a continuation and of a reference.
        max_texts: continue only the first N prefixes; None: all.
        topk: draw each token from the K of the highest probability; None: take the most probable one.
        seed: of the random numbers, 0 to 2⁶³ − 1.
        f2_decoding: how a factorized output layer goes from class to token; None: as the checkpoint says.
        batch_size: texts at a time; changes no text, except those of `sample-class`, which the model itself draws.

    Returns:
        Result: a single row, named by `output`, with `texts`, `generated_tokens`, `unused_tokens`, those of the split
        that are in no block, and beside the measures the `path` of the checkpoint.

    Reference: Choi et al. (2020), Sec. 4.1.5; Fan et al. (2018) for top-k sampling.
    """
    check_writable(output, model.path)
    for name, value in {
        "prefix_length": prefix_length, "length": length, "max_texts": max_texts, "topk": topk, "batch_size": batch_size
    }.items():  # fmt: skip
        if value is not None and not 1 <= value < 2**31:
            raise UserError(f"--{name.replace('_', '-')}: expected 1 to 2^31 - 1, got {value}")
    if not 0 <= seed < 2**63:
        raise UserError(f"--seed: expected 0 to 2^63 - 1, got {seed}")
    if not model.is_language_model:
        task_name = model.task_options.get("_name")
        raise UserError(f"{model}: found a model of the task {task_name}; expected language_modeling")
    model.check_vocabulary(len(load_dictionary(data)), data)
    if f2_decoding and "f2_decoding" not in model.model_options:
        raise UserError(f"--f2-decoding: found an ordinary softmax in {model}; expected a factorized one")
    torch_device = find_device(device)
    overrides = {"sample_break_mode": "none", **({"f2_decoding": f2_decoding} if f2_decoding else {})}
    from ..models.from_checkpoint import build_model  # imports fairseq

    network, task = build_model(model, data, overrides)
    dictionary = task.source_dictionary
    adds_bos = bool(getattr(task.args, "add_bos_token", False))
    needed = prefix_length + length - 1 + adds_bos
    positions = decoding.learned_positions(network.decoder)
    if positions is not None and needed > positions:
        raise UserError(f"{model}: found {positions} positions, not {needed}; lower --prefix-length or --length")
    if topk is not None and topk > len(task.target_dictionary):
        raise UserError(f"--topk: expected 1 to {len(task.target_dictionary)} (the model's vocabulary), got {topk}")
    check_finite(model.path, dict(network.named_parameters()))
    blocks, tokens = _blocks(task, data, split, prefix_length + length, max_texts)

    network.to(torch_device)
    torch.manual_seed(seed)  # for models that draw by themselves
    options = {"topk": topk, "generator": torch.Generator().manual_seed(seed)}
    options["forbidden"] = (dictionary.pad(), dictionary.bos())

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for batch in tqdm(blocks.split(batch_size), desc="continuing", unit="batch", disable=None, leave=False):
                prefixes, references = batch[:, :prefix_length], batch[:, prefix_length:]
                known = pad(prefixes, (1, 0), value=dictionary.bos()) if adds_bos else prefixes
                try:
                    continued = decoding.continuation(network, known.to(torch_device), length, **options)
                except torch.cuda.OutOfMemoryError as error:
                    raise UserError(f"--batch-size: found {len(batch)}, too many for the GPU; lower it") from error
                for texts in zip(prefixes.tolist(), continued.tolist(), references.tolist(), strict=True):
                    words = (" ".join(dictionary[token] for token in text) for text in texts)
                    line = dict(zip(("prefix", "continuation", "reference"), words, strict=True))
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")

    atomic_write(output, write)
    used_decoding = f2_decoding or model.model_options.get("f2_decoding")
    row = {
        "path": str(model),
        "texts": len(blocks),
        "generated_tokens": len(blocks) * length,
        "unused_tokens": tokens - blocks.numel(),
    }
    settings = {
        "split": split,
        "texts": len(blocks),
        "prefix": prefix_length,
        "length": length,
        "decoding": "greedy" if topk is None else f"top-k={topk}",
        "f2-decoding": used_decoding or None,
        "seed": seed,
        "batch-size": batch_size if used_decoding == "sample-class" else None,  # drawn by the model
    }
    columns = dict.fromkeys(("texts", "generated_tokens", "unused_tokens"), [""])
    return Result({str(output): row}, columns, settings)


def _blocks(task: Any, data: str | Path, split: str, size: int, max_texts: int | None) -> tuple[Tensor, int]:
    """The whole blocks of a split, (N, P + L) int64, cut as fairseq-eval-lm does; and the number of its tokens."""
    count_tokens(data, task.source_dictionary, split)  # fairseq would read what a damaged index says
    try:
        task.args.tokens_per_sample = size
        task.load_dataset(split)
        stream = task.dataset(split).dataset  # item i: the tokens before those of block i, its tokens, …
        tokens = int(stream.sizes.sum())
        number = tokens // size if max_texts is None else min(tokens // size, max_texts)
        cut = [stream[index][1] for index in range(number)]
    except (ValueError, RuntimeError, AssertionError, OSError) as error:
        raise UserError(f"{data}/{split}: unreadable ({first_line(error)}); run fairseq-preprocess again") from error
    if not cut:
        raise UserError(f"{split}: found {tokens} tokens; expected at least {size}; lower --prefix-length or --length")
    return torch.stack(cut), tokens
