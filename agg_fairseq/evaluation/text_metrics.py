"""Measures of generated texts: close to the references, similar to each other, varied."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from .. import metrics
from ..columns import GENERATED_TEXTS
from ..data.vocabulary import BinarizedVocabulary
from ..errors import UserError
from ..files import read_lines
from ..metrics.texts import ABSENT, MOST_REPEATS, SHORTEST_PHRASE
from ..names import HUMAN
from ..result import Result
from .inputs import check_row_names

TEXT_FIELDS = ("prefix", "continuation", "reference")
MASS_GROUPING = "40%/30%/20%/10%-of-mass"  # metrics.frequency_mass_groups


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
