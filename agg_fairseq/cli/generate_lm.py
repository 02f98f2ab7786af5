"""Continues the prefixes of a split with a language model: one JSON object per line.

The split is one stream of tokens, line ends included, cut into blocks of a prefix and its reference; what is left
over at its end is dropped. Each prefix is continued by as many tokens as its reference has, line ends among them.
`prefix`, `continuation` and `reference` hold the dictionary's symbols, joined by spaces. The defaults are the setting
of F2-Softmax (EMNLP 2020, Sec. 4.1.5), decoded greedily.

    agg-fairseq generate-lm data-bin/wikitext-103 --path runs/mle/checkpoint_best.pt --output mle.jsonl
    agg-fairseq generate-lm data-bin/wikitext-103 --path runs/mle/checkpoint_best.pt --output top10.jsonl --topk 10
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor, nn
from tqdm import tqdm

from .. import __version__, decoding
from ..data.binarized import load_dictionary
from ..errors import UserError, first_line
from ..files import check_distinct, check_writable, write_json, write_whole
from ..functional.decoupled import DECODINGS
from .checkpoints import check_finite, check_language_model, load_model, open_model, options_of_model
from .devices import find_device


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options; those that fairseq-generate has too bear the same names."""
    parser.add_argument("data", help="folder written by fairseq-preprocess")
    parser.add_argument("--path", required=True, metavar="CKPT", help="checkpoint of a language model")
    parser.add_argument("--output", required=True, metavar="FILE", help="texts to write, one JSON object per line")
    parser.add_argument("--gen-subset", default="test", metavar="SPLIT", help="split to continue (default: test)")
    parser.add_argument(
        "--prefix-length", type=int, default=50, metavar="P", help="tokens that the model is given (default: 50)"
    )
    parser.add_argument(
        "--length", type=int, default=100, metavar="L", help="tokens of a continuation and a reference (default: 100)"
    )
    parser.add_argument("--max-texts", type=int, metavar="N", help="continue only the first N prefixes (default: all)")
    parser.add_argument(
        "--topk", type=int, metavar="K", help="draw from the K likeliest tokens (default: take the likeliest)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the random numbers (default: 1)")
    parser.add_argument(
        "--f2-decoding",
        choices=DECODINGS,
        help="how a factorised output layer goes from class to token (default: as the checkpoint says)",
    )
    parser.add_argument("--batch-size", type=int, default=64, metavar="B", help="texts at a time (default: 64)")
    parser.add_argument("--json", metavar="FILE", help="also write signature and counts to FILE")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, … (default: a GPU if there is one)")


def run(arguments: argparse.Namespace) -> None:
    """Writes the texts, prints a summary and the signature, and writes the JSON file."""
    check_distinct(path=arguments.path, output=arguments.output, json=arguments.json)
    started = time.monotonic()
    written = generate(arguments)
    speed = written["generated_tokens"] / (time.monotonic() - started)
    print(f"{arguments.output}: {written['texts']} prefixes continued, {speed:.0f} tokens/s\n{written['signature']}")
    if arguments.json:
        write_json(arguments.json, written)


def generate(arguments: argparse.Namespace) -> dict[str, Any]:
    """Writes the texts.

    Returns:
        The signature, the path of the model, and how many texts and tokens there are.
    """
    _check_values(arguments)
    dictionary = load_dictionary(arguments.data)
    check_language_model(arguments.path, arguments.data, len(dictionary))
    f2_decoding = _f2_decoding(arguments.path, arguments.f2_decoding)
    device = find_device(arguments.device)
    overrides = {"f2_decoding": arguments.f2_decoding} if arguments.f2_decoding else {}
    model, task = load_model(arguments.path, arguments.data, {"sample_break_mode": "none", **overrides})
    _check_model(model, task, arguments)
    blocks, unused = _blocks(task, arguments)
    for path in filter(None, (arguments.output, arguments.json)):
        check_writable(path)
    write_whole(arguments.output, lambda temporary: _write(temporary, model.to(device), task, blocks, arguments))
    return {
        "signature": _signature(arguments, len(blocks), f2_decoding),
        "path": str(arguments.path),
        "texts": len(blocks),
        "generated_tokens": len(blocks) * arguments.length,
        "unused_tokens": unused,
    }


def _check_values(arguments: argparse.Namespace) -> None:
    for option in ("prefix_length", "length", "max_texts", "topk", "batch_size"):
        value = getattr(arguments, option)
        if value is not None and not 1 <= value < 2**31:
            raise UserError(f"--{option.replace('_', '-')}: expected at least 1, got {value}")
    if not 0 <= arguments.seed < 2**63:
        raise UserError(f"--seed: expected 0 to 2^63 - 1, got {arguments.seed}")


def _f2_decoding(path: str, asked: str | None) -> str | None:
    """How a factorised output layer will decode; None for an ordinary softmax."""
    options = options_of_model(path, open_model(path))
    if asked and "f2_decoding" not in options:
        raise UserError(
            f"--f2-decoding: found a model with an ordinary softmax in {path}; expected one of a factorised output "
            "layer, transformer_lm_f2…; leave the option out"
        )
    return asked or options.get("f2_decoding")


def _check_model(model: nn.Module, task: Any, arguments: argparse.Namespace) -> None:
    needed = arguments.prefix_length + arguments.length - 1 + _starts_with_bos(task)
    positions = decoding.learned_positions(model.decoder)
    if positions is not None and needed > positions:
        raise UserError(
            f"{arguments.path}: found a model with {positions} learned positions; expected at least {needed}, a "
            "prefix and its continuation; lower --prefix-length or --length"
        )
    vocabulary = len(task.target_dictionary)
    if arguments.topk is not None and arguments.topk > vocabulary:
        raise UserError(f"--topk: expected 1 to {vocabulary} (the model's vocabulary), got {arguments.topk}")
    check_finite(arguments.path, dict(model.named_parameters()))


def _starts_with_bos(task: Any) -> bool:
    return bool(getattr(task.args, "add_bos_token", False))


def _blocks(task: Any, arguments: argparse.Namespace) -> tuple[Tensor, int]:
    """(N, P + L) int64: the blocks to continue; and how many tokens of the split are in none."""
    size, split = arguments.prefix_length + arguments.length, arguments.gen_subset
    if not (Path(arguments.data) / f"{split}.bin").is_file():
        raise UserError(f"--gen-subset: found no split {split!r} in {arguments.data}; expected {split}.bin there")
    try:
        cut, tokens = _cut(task, split, size, arguments.max_texts)
    except (ValueError, RuntimeError, AssertionError, OSError) as error:
        raise UserError(
            f"{arguments.data}/{split}: unreadable ({first_line(error)}); run fairseq-preprocess again"
        ) from error
    if not cut:
        raise UserError(
            f"--gen-subset: found {tokens} tokens in {split!r}; expected at least {size}, a prefix and its reference; "
            "lower --prefix-length or --length"
        )
    blocks = torch.stack(cut)
    _check_tokens(blocks, task.source_dictionary, arguments)
    return blocks, tokens - blocks.numel()


def _cut(task: Any, split: str, size: int, max_texts: int | None) -> tuple[list[Tensor], int]:
    """The whole blocks of a split, cut as fairseq-eval-lm does, at most `max_texts`; and the split's tokens."""
    task.args.tokens_per_sample = size
    task.load_dataset(split)
    stream = task.dataset(split).dataset  # item i: the tokens before those of block i, its tokens, …
    tokens = int(stream.sizes.sum())
    number = tokens // size if max_texts is None else min(tokens // size, max_texts)
    return [stream[index][1] for index in range(number)], tokens


def _check_tokens(blocks: Tensor, dictionary: Any, arguments: argparse.Namespace) -> None:
    largest = int(blocks.max())
    if largest >= len(dictionary):
        raise UserError(
            f"{arguments.data}/{arguments.gen_subset}: found token {largest}, but the dictionary has "
            f"{len(dictionary)}; expected both to come from the same fairseq-preprocess"
        )


def _write(path: Path, model: nn.Module, task: Any, blocks: Tensor, arguments: argparse.Namespace) -> None:
    torch.manual_seed(arguments.seed)  # for models that draw by themselves
    generator = torch.Generator().manual_seed(arguments.seed)
    batches = blocks.split(arguments.batch_size)
    with path.open("w", encoding="utf-8") as file:
        for batch in tqdm(batches, desc="continuing", unit="batch", disable=None, leave=False):
            prefixes = batch[:, : arguments.prefix_length]
            continued = _continue(model, task, prefixes, arguments, generator)
            _write_lines(file, task.source_dictionary, prefixes, continued, batch[:, arguments.prefix_length :])


def _continue(
    model: nn.Module, task: Any, prefixes: Tensor, arguments: argparse.Namespace, generator: torch.Generator
) -> Tensor:
    """(B, L) on the CPU. A model that was trained with a bos before its blocks gets one before the prefix."""
    dictionary = task.source_dictionary
    if _starts_with_bos(task):
        prefixes = nn.functional.pad(prefixes, (1, 0), value=dictionary.bos())
    prefixes = prefixes.to(next(model.parameters()).device)
    forbidden = (dictionary.pad(), dictionary.bos())
    try:
        return decoding.continuation(
            model, prefixes, arguments.length, topk=arguments.topk, generator=generator, forbidden=forbidden
        ).cpu()
    except torch.cuda.OutOfMemoryError as error:
        raise UserError(f"--batch-size: found {len(prefixes)} texts too many for the GPU's memory; lower it") from error


def _write_lines(file: TextIO, dictionary: Any, prefixes: Tensor, continued: Tensor, references: Tensor) -> None:
    for texts in zip(prefixes.tolist(), continued.tolist(), references.tolist(), strict=True):
        words = (" ".join(dictionary[token] for token in text) for text in texts)
        line = dict(zip(("prefix", "continuation", "reference"), words, strict=True))
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _signature(arguments: argparse.Namespace, texts: int, f2_decoding: str | None) -> str:
    """Every choice that moves a text."""
    return "|".join(
        [
            f"split:{arguments.gen_subset}",
            f"texts:{texts}",
            f"prefix:{arguments.prefix_length}",
            f"length:{arguments.length}",
            f"decoding:{'greedy' if arguments.topk is None else f'top-k={arguments.topk}'}",
            *([f"f2-decoding:{f2_decoding}"] if f2_decoding else []),
            f"seed:{arguments.seed}",
            *([f"batch-size:{arguments.batch_size}"] if f2_decoding == "sample-class" else []),  # drawn by the model
            f"version:{__version__}",
        ]
    )
