"""Continuations of prefixes by a language model, written as JSON Lines, and their measures: close to
the references, similar to each other, varied."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from .. import metrics
from ..checkpoints import Checkpoint
from ..checkpoints.output_embedding import check_finite
from ..columns import GENERATED_TEXTS
from ..data.binarized import folders, load_dictionary, read_tokens
from ..data.subwords import WORDS, TokenizerOptions
from ..data.vocabulary import BinarizedVocabulary
from ..errors import UserError
from ..fairseq_plugin.decoding import continuation
from ..files import atomic_write, check_writable, read_lines
from ..metrics.texts import ABSENT, MOST_REPEATS, SHORTEST_PHRASE
from ..names import HUMAN
from ..result import Result
from .inputs import check_row_names, find_device

TEXT_FIELDS = ("prefix", "continuation", "reference")
MASS_GROUPING = "40%/30%/20%/10%-of-mass"  # metrics.frequency_mass_groups


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
    """
    check_writable(output, model.path)
    dictionary = load_dictionary(data)
    model.check_vocabulary(len(dictionary), data)
    if f2_decoding and "f2_decoding" not in model.options("model"):
        raise UserError(
            f"--f2-decoding: found an ordinary softmax in {model}; expected a factorized one"
        )
    if prefixes is None:
        known, references, settings, unused = _blocks(
            data, dictionary, split, (prefix_length, length), max_texts
        )
    else:
        known, settings = _lines(prefixes, dictionary, tokenizer, max_texts)
        references, unused = [known[0][:0]] * len(known), None

    from ..fairseq_plugin.models.from_checkpoint import build_model  # imports fairseq

    network, task = build_model(model, data, {"f2_decoding": f2_decoding} if f2_decoding else {})
    check_finite(model.path, dict(network.named_parameters()))
    adds_bos = getattr(task.args, "add_bos_token", False)
    longest = max(map(len, known)) + length + adds_bos
    positions = network.max_positions()
    learned = isinstance(getattr(network.decoder, "embed_positions", None), torch.nn.Embedding)
    if longest > positions and learned:
        raise UserError(
            f"{model}: found {positions} positions; expected {longest}, as many as a text "
            "has tokens; lower --length"
        )
    torch.manual_seed(seed)  # for models that draw by themselves
    draws = None
    if topk is not None:  # of the CPU: a seed means the same on all devices
        draws = torch.rand(len(known), length, generator=torch.Generator().manual_seed(seed))
    torch_device = find_device(device)
    network.to(torch_device)
    begun = [pad(prefix, (int(adds_bos), 0), value=dictionary.bos()) for prefix in known]
    lengths, texts = torch.tensor(list(map(len, begun))), []
    order = lengths.argsort(stable=True)  # those of about the same length at a time
    for batch in tqdm(order.split(batch_size), "continuing", leave=False, disable=None):
        prefixes_of_batch = [begun[number] for number in batch]
        padded = pad_sequence(prefixes_of_batch, batch_first=True, padding_value=dictionary.pad())
        continued = continuation(
            network,
            padded.to(torch_device),
            length,
            lengths=lengths[batch] if len(lengths[batch].unique()) > 1 else None,
            draws=None if draws is None else draws[batch].to(torch_device),
            topk=topk,
            forbidden=(dictionary.pad(), dictionary.bos()),
        )
        texts.append(continued.cpu())
    continuations = torch.cat(texts)[order.argsort()]  # N x L

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            for parts in zip(known, continuations, references, strict=True):
                line = {}
                for field, tokens in zip(TEXT_FIELDS, parts, strict=True):
                    line[field] = " ".join(map(dictionary.__getitem__, tokens.tolist()))
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    atomic_write(output, write)
    tokens = len(known) * length
    measured = {"texts": len(known), "generated_tokens": tokens, "unused_tokens": unused}
    used_decoding = f2_decoding or model.options("model").get("f2_decoding")
    settings |= {
        "length": length,
        "beyond-positions": positions if longest > positions else None,  # the model extrapolates
        "decoding": "greedy" if topk is None else f"top-k={topk}",
        "f2-decoding": used_decoding or None,
        "seed": seed,
        "batch-size": batch_size if used_decoding == "sample-class" else None,  # drawn by the model
    }
    row = {"path": str(model), **measured}
    return Result({str(output): row}, dict.fromkeys(measured, [""]), settings)


def _blocks(
    data: str | Path, dictionary: Any, split: str, lengths: tuple[int, int], most: int | None
) -> tuple[Sequence[Tensor], Sequence[Tensor], dict[str, Any], int]:
    """Prefixes and references (N, …) of blocks of a split, one after the other; their settings; the
    number of tokens that are in no block."""
    parts = list(read_tokens(folders(data)[0] / split, dictionary))
    size, tokens = sum(lengths), sum(map(len, parts))
    if tokens < size:
        raise UserError(
            f"{split}: found {tokens} tokens; expected at least {size}; lower --prefix-length"
        )
    text = torch.from_numpy(np.concatenate(parts).astype("int64"))
    blocks = text[: tokens // size * size].view(-1, size)[:most]  # N x (P + L)
    settings = {"split": split, "texts": len(blocks), "prefix": lengths[0]}
    return *blocks.split(lengths, dim=1), settings, tokens - blocks.numel()


def _lines(
    path: str | Path, dictionary: Any, tokenizer: TokenizerOptions, most: int | None
) -> tuple[list[Tensor], dict[str, Any]]:
    """The first lines of a text as prefixes (P,), and their settings. Blank lines at the end are
    left out; UserError for another line without known tokens."""
    lines = list(tokenizer.encode_lines(path, dictionary))
    while lines and not lines[-1]:
        lines.pop()
    for number, tokens in enumerate(lines or [[]], 1):
        if set(tokens) <= {dictionary.unk()}:
            raise UserError(
                f"{path}, line {number}: found no token of the dictionary; expected a prefix; "
                "check --bpe"
            )
    lines = lines[:most]
    unknown = sum(tokens.count(dictionary.unk()) for tokens in lines)
    settings = {"prefixes": Path(path).name, "bpe": tokenizer.bpe, "<unk>": unknown}
    return list(map(torch.tensor, lines)), settings | {"texts": len(lines)}


def text_metrics(texts: Mapping[str, str | Path], data: str | Path | None = None) -> Result:
    """Compares generated texts with the human texts that follow the same prefixes.

    Args:
        texts: files of JSON Lines as `generate_texts` writes them, by the names of their rows; all
            with the same references in the same order.
        data: folder of `fairseq-preprocess` with the dictionary of the texts, for the shares of
            frequent, medium, rare and very rare tokens; None: no shares.
    """
    check_row_names(texts, HUMAN)
    everything, references = {}, None
    for name, path in texts.items():
        records = read_texts(path)
        everything[name] = [record["continuation"].split() for record in records]
        others = [record["reference"].split() for record in records]
        references = references or others
        if others != references:
            first = next(iter(texts.values()))
            raise UserError(f"{path}: found other references than in {first}; expected the same")
    has_references = any(references)  # the texts of `prefixes` have none
    if has_references:
        everything[HUMAN] = references
    groups = None
    if data is not None:
        vocabulary = BinarizedVocabulary.load(data)
        groups = metrics.frequency_mass_groups(vocabulary.counts, excluded=vocabulary.excluded)

    def by_order(values: Sequence[float | None]) -> dict[str, float | None]:
        return dict(zip(GENERATED_TEXTS["distinct"], values, strict=True))

    rows = {}
    for name, row_texts in tqdm(everything.items(), "measuring", leave=False, disable=None):
        row = rows[name] = {
            "tokens": sum(map(len, row_texts)),
            "kld": None,
            "ms_jaccard": None,
            "self_bleu": None,
            "distinct": by_order(metrics.distinct(row_texts)),
            "repetition": metrics.repetition(row_texts),
            "unique_tokens": metrics.unique_tokens(row_texts),
            "token_share": None,
            "path": None if name == HUMAN else str(texts[name]),
        }
        if name != HUMAN and has_references:
            row["kld"] = metrics.kl_divergence(row_texts, references)
            row["ms_jaccard"] = by_order(metrics.ms_jaccard(row_texts, references))
        if len(row_texts) > 1:
            row["self_bleu"] = by_order(metrics.self_bleu(row_texts))
        tokens = list(itertools.chain(*row_texts))
        if groups is not None and tokens:
            unknown = [token for token in tokens if token not in vocabulary.dictionary]
            if unknown:
                raise UserError(
                    f"--data {data}: found {len(unknown):,} of {len(tokens):,} tokens of {name}, "
                    f"such as {unknown[0]!r}, not in dict.txt; expected the model's own data"
                )
            indices = torch.tensor(list(map(vocabulary.dictionary.index, tokens)))
            row["token_share"] = metrics.group_shares(indices, groups)
    settings = {
        "texts": len(references),
        "tokens": sum(map(len, references)),
        "self-bleu": "method1,closest",
        "ms-jaccard": "counts-per-text,unpadded",
        "kld": f"{ABSENT:g},nats",
        "distinct": "per-token",
        "rep": f"most-repeated,{SHORTEST_PHRASE}-or-more-tokens-or-over-{MOST_REPEATS}-times",
        "groups": groups and MASS_GROUPING,
    }
    columns = {**GENERATED_TEXTS, "token_share": groups.names if groups else []}
    return Result(rows, columns, settings, {"groups": groups and groups.sizes()})


def read_texts(path: str | Path) -> list[dict[str, str]]:
    """Reads JSON Lines, each an object with the strings `TEXT_FIELDS`."""
    records = []
    for count, line in enumerate(read_lines(path, "texts written by agg-fairseq generate-lm"), 1):
        try:
            record = json.loads(line)
            if not all(isinstance(record[field], str) for field in TEXT_FIELDS):
                raise ValueError
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UserError(
                f"{path}, line {count}: found {line.strip()[:60]!r}; expected JSON of "
                f"{', '.join(TEXT_FIELDS)}"
            ) from error
        records.append(record)
    if not records:
        raise UserError(
            f"{path}: found no text; expected a JSON object per line; run agg-fairseq "
            "generate-lm again"
        )
    return records
