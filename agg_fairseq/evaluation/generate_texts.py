"""Continuations of prefixes by a language model, written as JSON Lines."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from tqdm import tqdm

from ..checkpoints import Checkpoint
from ..checkpoints.output_embedding import check_finite
from ..data.binarized import folders, load_dictionary, read_tokens
from ..data.subwords import WORDS, TokenizerOptions
from ..errors import UserError
from ..fairseq_plugin.decoding import continuation
from ..files import atomic_write, check_writable
from ..result import Result
from .inputs import find_device
from .text_metrics import FIELDS

Batches = list[tuple[Tensor, Tensor]]  # prefixes (B, P) and their references (B, L), or (B, 0)


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
        batch_size: texts at a time; changes only the texts of `sample-class`, which the model
            itself draws.

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
        lengths = (prefix_length, length)
        batches, settings, unused = _blocks(data, dictionary, split, lengths, max_texts, batch_size)
    else:
        batches, settings = _lines(prefixes, dictionary, tokenizer, max_texts)
        unused = None

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
    generator = torch.Generator().manual_seed(seed)
    forbidden = (dictionary.pad(), dictionary.bos())

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            for known, references in tqdm(batches, "continuing", leave=False, disable=None):
                start = pad(known, (1, 0), value=dictionary.bos()) if adds_bos else known
                start = start.to(torch_device)
                continued = continuation(
                    network, start, length, topk=topk, generator=generator, forbidden=forbidden
                )
                for texts in zip(known, continued, references, strict=True):
                    line = {}
                    for field, tokens in zip(FIELDS, texts, strict=True):
                        line[field] = " ".join(map(dictionary.__getitem__, tokens.tolist()))
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")

    atomic_write(output, write)
    number = settings["texts"]
    numbers = {"texts": number, "generated_tokens": number * length, "unused_tokens": unused}
    used_decoding = f2_decoding or model.model_options.get("f2_decoding")
    settings |= {
        "length": length,
        "beyond-positions": positions if longest > positions else None,  # the model extrapolates
        "decoding": "greedy" if topk is None else f"top-k={topk}",
        "f2-decoding": used_decoding or None,
        "seed": seed,
        "batch-size": batch_size if used_decoding == "sample-class" else None,  # drawn by the model
    }
    row = {"path": str(model), **numbers}
    return Result({str(output): row}, dict.fromkeys(numbers, [""]), settings)


def _blocks(
    data: str | Path,
    dictionary: Any,
    split: str,
    lengths: tuple[int, int],
    most: int | None,
    batch_size: int,
) -> tuple[Batches, dict[str, Any], int]:
    """Batches of blocks of a split, one after the other; their settings; the number of tokens that
    are in no block."""
    parts = []
    for part in read_tokens(folders(data)[0] / split, dictionary):
        parts.append(torch.from_numpy(part.astype("int64")))
    size, tokens = sum(lengths), sum(map(len, parts))
    if tokens < size:
        raise UserError(
            f"{split}: found {tokens} tokens; expected at least {size}; lower --prefix-length"
        )
    blocks = torch.cat(parts)[: tokens // size * size].view(-1, size)[:most]  # N x (P + L)
    batches = []
    for batch in blocks.split(batch_size):
        batches.append(batch.split(lengths, dim=1))
    settings = {"split": split, "texts": len(blocks), "prefix": lengths[0]}
    return batches, settings, tokens - blocks.numel()


def _lines(
    path: str | Path, dictionary: Any, tokenizer: TokenizerOptions, most: int | None
) -> tuple[Batches, dict[str, Any]]:
    """The lines of a text, each a batch without references, and their settings. Blank lines at the
    end are left out; UserError for another line without known tokens."""
    lines = list(tokenizer.encode_lines(path, dictionary))
    while lines and not lines[-1]:
        lines.pop()
    batches, unknown = [], 0
    for number, tokens in enumerate(lines or [[]], 1):
        if set(tokens) <= {dictionary.unk()}:
            raise UserError(
                f"{path}, line {number}: found no token of the dictionary; expected a prefix; "
                "check --bpe"
            )
        if most is None or number <= most:
            prefix = torch.tensor([tokens])
            batches.append((prefix, prefix[:, :0]))
            unknown += tokens.count(dictionary.unk())
    settings = {"prefixes": Path(path).name, "bpe": tokenizer.bpe, "<unk>": unknown}
    return batches, settings | {"texts": len(batches)}
