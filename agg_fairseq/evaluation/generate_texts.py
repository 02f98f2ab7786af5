"""Continuations of a split's prefixes by a language model, written as JSON Lines."""

import json
from pathlib import Path

import torch
from torch.nn.functional import pad
from tqdm import tqdm

from ..checkpoints.fairseq_checkpoint import Checkpoint
from ..checkpoints.output_embedding import check_finite
from ..data.binarized import count_tokens, load_dictionary
from ..errors import UserError
from ..fairseq_plugin import decoding
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

    The split is read as one stream of tokens, including its line ends, and cut into blocks of a
    prefix and its reference; an incomplete block at the end is dropped. `prefix`, `continuation`
    and `reference` contain tokens of the dictionary, separated by spaces.

    Args:
        model: a language model over the dictionary of `data`.
        output: texts to write.
        length: tokens of a continuation and of a reference.
        max_texts: continue only the first N prefixes; None: all.
        topk: draw each token from the K of the highest probability; None: take the most probable
            one.
        seed: of the random numbers, 0 to 2⁶³ − 1.
        f2_decoding: how a factorized output layer goes from class to token; None: as the checkpoint
            says.
        batch_size: texts at a time; changes no text, except those of `sample-class`, which the
            model itself draws.

    Returns:
        Result: a single row, named by `output`, with `texts`, `generated_tokens`, `unused_tokens`,
        those of the split that are in no block, and beside the measures the `path` of the
        checkpoint.

    Reference: Choi et al. (2020), Sec. 4.1.5; Fan et al. (2018) for top-k sampling.
    """
    check_writable(output, model.path)
    model.check_vocabulary(len(load_dictionary(data)), data)
    if f2_decoding and "f2_decoding" not in model.model_options:
        raise UserError(
            f"--f2-decoding: found an ordinary softmax in {model}; expected a factorized one"
        )
    torch_device = find_device(device)
    overrides = {
        "sample_break_mode": "none",
        **({"f2_decoding": f2_decoding} if f2_decoding else {}),
    }
    from ..fairseq_plugin.models.from_checkpoint import build_model  # imports fairseq

    network, task = build_model(model, data, overrides)
    dictionary = task.source_dictionary
    adds_bos = getattr(task.args, "add_bos_token", False)
    check_finite(model.path, dict(network.named_parameters()))
    count_tokens(data, dictionary, split)  # fairseq would read what a damaged index says
    size, positions = prefix_length + length, network.max_positions()
    is_longer = size + adds_bos > positions
    if is_longer and isinstance(
        getattr(network.decoder, "embed_positions", None), torch.nn.Embedding
    ):
        raise UserError(
            f"{model}: found {positions} positions; expected {size + adds_bos}, as many as a text "
            "has tokens; lower --length"
        )
    task.args.tokens_per_sample = size
    task.load_dataset(split)
    # item i: the tokens before those of block i, its tokens, …
    stream = task.dataset(split).dataset
    tokens = int(stream.sizes.sum())
    if tokens < size:
        raise UserError(
            f"{split}: found {tokens} tokens; expected at least {size}; lower --prefix-length"
        )
    # N x (P + L)
    blocks = torch.stack([stream[index][1] for index in range(tokens // size)[:max_texts]])

    network.to(torch_device)
    torch.manual_seed(seed)  # for models that draw by themselves
    options = {"topk": topk, "forbidden": (dictionary.pad(), dictionary.bos())}
    options["generator"] = torch.Generator().manual_seed(seed)

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for batch in tqdm(
                blocks.split(batch_size), desc="continuing", unit="batch", disable=None, leave=False
            ):
                prefixes, references = batch[:, :prefix_length], batch[:, prefix_length:]
                known = pad(prefixes, (1, 0), value=dictionary.bos()) if adds_bos else prefixes
                continued = decoding.continuation(
                    network, known.to(torch_device), length, **options
                )
                for texts in zip(
                    prefixes.tolist(), continued.tolist(), references.tolist(), strict=True
                ):
                    words = (" ".join(dictionary[token] for token in text) for text in texts)
                    line = dict(zip(("prefix", "continuation", "reference"), words, strict=True))
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")

    atomic_write(output, write)
    used_decoding = f2_decoding or model.model_options.get("f2_decoding")
    numbers = {"texts": len(blocks), "generated_tokens": len(blocks) * length}
    numbers["unused_tokens"] = tokens - blocks.numel()
    settings = {
        "split": split,
        "texts": len(blocks),
        "prefix": prefix_length,
        "length": length,
        "beyond-positions": positions if is_longer else None,  # the model extrapolates
        "decoding": "greedy" if topk is None else f"top-k={topk}",
        "f2-decoding": used_decoding or None,
        "seed": seed,
        "batch-size": batch_size if used_decoding == "sample-class" else None,  # drawn by the model
    }
    return Result(
        {str(output): {"path": str(model), **numbers}}, dict.fromkeys(numbers, [""]), settings
    )
