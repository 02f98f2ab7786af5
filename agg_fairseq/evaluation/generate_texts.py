"""Continuations of prefixes by a language model, written as JSON Lines."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from tqdm import tqdm

from ..checkpoints.fairseq_checkpoint import Checkpoint
from ..checkpoints.output_embedding import check_finite
from ..data.binarized import load_dictionary, read_tokens
from ..data.subwords import WORDS, TokenizerOptions
from ..errors import UserError
from ..fairseq_plugin.decoding import continuation
from ..files import atomic_write, check_writable
from ..result import Result
from .inputs import find_device
from .text_metrics import FIELDS


def generate_texts(
    model: Checkpoint,
    data: str | Path,
    output: str | Path,
    *,
    split: str = "test",
    prefixes: str | Path | None = None,
    tokenizer: TokenizerOptions = WORDS,
    prefix_length: int = 50,
    length: int = 100,
    max_texts: int | None = None,
    topk: int | None = None,
    seed: int = 1,
    f2_decoding: str | None = None,
    batch_size: int = 64,
    device: str | None = None,
) -> Result:
    """Continues prefixes with a language model, and writes a JSON object per line.

    Args:
        model: a language model over the dictionary of `data`.
        output: texts to write.
        split: split to read.
        prefixes: text in UTF-8 whose lines, of any length, are continued instead; `</s>` is the end
            of a line within a prefix.
        tokenizer: of `prefixes`; a token that the dictionary lacks is `<unk>`.
        prefix_length: tokens of a prefix of the split.
        length: tokens of a continuation and of a reference.
        max_texts: continue only the first N prefixes; None: all.
        topk: draw each token from the K most probable ones; None: take the most probable one.
        seed: seed of the random numbers.
        f2_decoding: how a factorized output layer goes from class to token; None: as the checkpoint
            says.
        batch_size: texts at a time; changes no text, except those of `sample-class`, which the
            model itself draws.

    Returns:
        Result: a single row, named by `output`, with `texts`, `generated_tokens`, and
        `unused_tokens`, those of the split that are in no block.
    """
    check_writable(output, model.path)
    dictionary = load_dictionary(data)
    model.check_vocabulary(len(dictionary), data)
    if f2_decoding and "f2_decoding" not in model.model_options:
        raise UserError(
            f"--f2-decoding: found an ordinary softmax in {model}; expected a factorized one"
        )
    if prefixes is None:
        size = prefix_length + length
        stream = _read_stream(data, dictionary, split, size)
        blocks = stream[: len(stream) // size * size].view(-1, size)[:max_texts]  # N x (P + L)
        batches = []
        for batch in blocks.split(batch_size):
            batches.append(batch.split([prefix_length, length], dim=1))
        unused = len(stream) - blocks.numel()
        source = {"split": split, "texts": len(blocks), "prefix": prefix_length}
    else:
        given, unused = _read_prefixes(prefixes, dictionary, tokenizer)[:max_texts], None
        batches = [(tokens[None], tokens[None, :0]) for tokens in given]  # without references
        unknown = int(torch.cat(given).eq(dictionary.unk()).sum())
        source = {"prefixes": Path(prefixes).name, "bpe": tokenizer.bpe, "<unk>": unknown}
        source["texts"] = len(given)

    from ..fairseq_plugin.models.from_checkpoint import build_model  # imports fairseq

    network, task = build_model(model, data, {"f2_decoding": f2_decoding} if f2_decoding else {})
    check_finite(model.path, dict(network.named_parameters()))
    adds_bos = getattr(task.args, "add_bos_token", False)
    longest = max(known.size(1) for known, _ in batches) + length + adds_bos
    positions = network.max_positions()
    learned = isinstance(getattr(network.decoder, "embed_positions", None), torch.nn.Embedding)
    if longest > positions and learned:
        raise UserError(
            f"{model}: found {positions} positions; expected {longest}, as many as a text "
            "has tokens; lower --length"
        )
    torch_device = find_device(device)
    network.to(torch_device)
    torch.manual_seed(seed)  # for models that draw by themselves
    options: dict[str, Any] = {"topk": topk, "forbidden": (dictionary.pad(), dictionary.bos())}
    options["generator"] = torch.Generator().manual_seed(seed)

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            for known, references in tqdm(batches, "continuing", leave=False, disable=None):
                start = pad(known, (1, 0), value=dictionary.bos()) if adds_bos else known
                continued = continuation(network, start.to(torch_device), length, **options)
                for texts in zip(known, continued, references, strict=True):
                    words = [" ".join(map(dictionary.__getitem__, text.tolist())) for text in texts]
                    line = dict(zip(FIELDS, words, strict=True))
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")

    atomic_write(output, write)
    number = source["texts"]
    numbers = {"texts": number, "generated_tokens": number * length, "unused_tokens": unused}
    used_decoding = f2_decoding or model.model_options.get("f2_decoding")
    settings = {
        **source,
        "length": length,
        "beyond-positions": positions if longest > positions else None,  # the model extrapolates
        "decoding": "greedy" if topk is None else f"top-k={topk}",
        "f2-decoding": used_decoding or None,
        "seed": seed,
        "batch-size": batch_size if used_decoding == "sample-class" else None,  # drawn by the model
    }
    return Result(
        {str(output): {"path": str(model), **numbers}}, dict.fromkeys(numbers, [""]), settings
    )


def _read_stream(data: str | Path, dictionary: Any, split: str, least: int) -> Tensor:
    """(N,) int64, all tokens of a split; UserError for fewer than `least`."""
    blocks = [
        torch.from_numpy(block.astype("int64")) for block in read_tokens(data, dictionary, split)
    ]
    tokens = sum(map(len, blocks))
    if tokens < least:
        raise UserError(
            f"{split}: found {tokens} tokens; expected at least {least}; lower --prefix-length"
        )
    return torch.cat(blocks)


def _read_prefixes(path: str | Path, dictionary: Any, tokenizer: TokenizerOptions) -> list[Tensor]:
    """The tokens (P,) of each line of a text; UserError for one without known tokens."""
    prefixes = []
    for number, tokens in enumerate(tokenizer.encode_lines(path, dictionary), 1):
        if set(tokens) <= {dictionary.unk()}:
            raise UserError(
                f"{path}, line {number}: found no token of the dictionary; expected a prefix; "
                "check --bpe"
            )
        prefixes.append(torch.tensor(tokens))
    if not prefixes:
        raise UserError(f"{path}: found no line; expected a prefix per line")
    return prefixes
