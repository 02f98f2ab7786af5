"""Shares of tokens that are rare in a text, and of those that Adam forgets."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..data.binarized import count_split, folders, has_split, split_parts
from ..data.tokenizer_vocabulary import TokenizerVocabulary
from ..data.vocabulary import BinarizedVocabulary, Vocabulary
from ..errors import UserError
from ..functional import forgetting, forgotten, rarest
from ..names import GROUPINGS, GROUPS, UNSEEN
from ..result import Result

BETAS, BEST = (0.95, 0.98, 0.99, 0.999), 0.999
FEWEST_TOKENS, MOST_EPOCHS, MOST_UNKNOWN = 100_000, 8, 0.005
"""Where the rule holds (docs/rule.md): training tokens, epochs, and share of unknown targets."""
MEASURED_CHANGES = {(1, 5): (-0.6, -6.6), (5, 10): (-3.6, -7.5), (10, 30): (-0.1, -30.1)}
"""By s from a number to another: the least and the largest change of the perplexity by `BEST` in our
trainings (README; all in percent)."""

MOST_BY_W = 0.15
"""The largest change by the rule with which `BEST` was measured for W alone."""


def group_shares(
    data: str | Path,
    *,
    tokenizer: str | Path | None = None,
    tokens_per_update: int | None = None,
    beta2: float | None = None,
    epochs: float | None = None,
    rare_fraction: float = 0.3,
    groups: str = "types",
) -> Result:
    """Shows how much of a text is rare, before anything is trained.

    Args:
        data: folder written by `fairseq-preprocess`, with the training split; of a parallel one,
            the target side. With `tokenizer`, a training text in UTF-8.
        tokenizer: tokenizer.json that encodes the text, or its folder.
        tokens_per_update: target tokens of an update, on all workers; None: no rows and columns of
            β₂.
        beta2: β₂ of Adam, for a row of its own and a prediction in words.
        epochs: epochs of the training, which say how far the prediction can be trusted; None: one.
        rare_fraction: `--agg-rare-fraction` of the row `rarest …`: the share of the tokens that
            occur.
    """
    if beta2 is not None and tokens_per_update is None:
        raise UserError("--beta2: found it without --tokens-per-update; expected both")
    vocabulary, splits = _counts_by_split(data, tokenizer)
    counts, excluded = vocabulary.counts, vocabulary.excluded  # V
    occurs, group_ids = counts > 0, vocabulary.groups(groups).group_ids
    members = {}  # the tokens (V,) bool of each row that does not depend on β₂
    for index, group in enumerate(GROUPS):
        members[group] = group_ids == index
    members["total"] = occurs  # special targets too
    rarest_row = f"rarest {100 * rare_fraction:g}%"
    members[rarest_row] = occurs & rarest(counts, rare_fraction, excluded)
    # with special tokens that are targets of another split alone
    unseen = ~occurs & (~excluded | (sum(splits.values()) > 0))
    if unseen.any():
        members[UNSEEN] = unseen
    rows = {}
    for name, is_member in members.items():
        rows[name] = _row(is_member, counts, splits, tokens_per_update)
    columns = {"types": [""], "fewest": [""], "most": [""], "target_share": list(splits)}
    counted_text = next(iter(splits))
    languages = getattr(vocabulary, "languages", None)
    settings = {
        "counted-in": counted_text,
        "pairs": languages and "-".join(languages),  # of which the second is counted
        "tokens": int(counts.sum()),
        "tokens-per-update": tokens_per_update,
        "groups": GROUPINGS[groups],
    }
    facts = {}
    if tokens_per_update is not None:
        columns |= {"updates_per_occurrence": [""], "change_by_beta2": [""]}
        # with `BEST`, AGG does not help
        if rows[rarest_row]["types"] and (beta2 is None or beta2 < BEST):
            updates = settings["tokens"] / tokens_per_update
            facts["window"] = window_advice(rare_fraction, rows[rarest_row], updates)
        best = forgetting(counts, tokens_per_update, BEST)
        for beta in sorted({*BETAS, BEST if beta2 is None else beta2}):
            is_forgotten = forgotten(counts, tokens_per_update, beta)
            row = _row(is_forgotten, counts, splits, tokens_per_update)
            row["change_by_beta2"] = math.expm1(best - forgetting(counts, tokens_per_update, beta))
            rows[f"forgotten with β₂ = {beta:g}"] = row
            if beta == beta2:
                unseen = rows[UNSEEN]["target_share"] if UNSEEN in rows else {}
                facts["prediction"] = prediction(
                    row["change_by_beta2"],
                    row["target_share"][counted_text],
                    settings["tokens"],
                    epochs or 1,
                    max(unseen.values(), default=0.0),
                )
                settings["epochs"] = f"{epochs or 1:g}"
    return Result(rows, columns, settings, facts)


def _counts_by_split(
    data: str | Path, tokenizer: str | Path | None
) -> tuple[Vocabulary, dict[str, Tensor]]:
    """The vocabulary, and its counts (V,) in each split, the training text first."""
    if tokenizer is not None:
        path = Path(tokenizer) / "tokenizer.json" if Path(tokenizer).is_dir() else Path(tokenizer)
        encoded = TokenizerVocabulary.load(path, None).recount(data)
        return encoded, {Path(data).name: encoded.counts}
    if Path(data).is_file():
        raise UserError(f"--tokenizer: found none for the text {data}; name its tokenizer.json")
    folder = folders(data)[0]
    is_parallel = any(folder.glob("train.*-*.*.bin")) and not (folder / "dict.txt").is_file()
    vocabulary = BinarizedVocabulary.load(data, (None, None) if is_parallel else None)
    splits = {"train": vocabulary.counts}
    for split in ("valid", "test"):
        if has_split(split_parts(folder, split, vocabulary.languages)[0]):
            splits[split] = count_split(
                folder, vocabulary.dictionary, split, vocabulary.languages, combine=False
            )
    return vocabulary, splits


def _row(
    is_member: Tensor, counts: Tensor, splits: Mapping[str, Tensor], tokens_per_update: int | None
) -> dict[str, Any]:
    """The measures of the tokens (V,) bool, except that of β₂."""
    group_counts = counts[is_member]
    types, occurrences = len(group_counts), int(group_counts.sum())
    row = {
        "types": types,
        "fewest": int(group_counts.min()) if types else None,
        "most": int(group_counts.max()) if types else None,
        "target_share": {},
    }
    for split, split_counts in splits.items():
        row["target_share"][split] = (split_counts[is_member].sum() / split_counts.sum()).item()
    if tokens_per_update is not None:
        group_tokens = tokens_per_update * (occurrences / counts.sum().item())
        row["updates_per_occurrence"] = types / group_tokens if occurrences else None
    return row


def window_advice(fraction: float, row: Mapping[str, Any], updates: float) -> str:
    """Options of AGG in words, from the row of its rarest tokens, and the updates of an epoch."""
    absence = row["updates_per_occurrence"]
    window = math.ceil(2 * absence)
    if window > updates / 2:
        return (
            f"AGG: no useful window, since the rarest {100 * fraction:g}% return every "
            f"{absence:,.0f} updates, in an epoch of {updates:,.0f}; make tokens less "
            "rare, by smaller sub-words or a higher fairseq-preprocess --thresholdsrc or "
            "--thresholdtgt"
        )
    text = f"AGG: --agg-window {window} (K = 2N), with --agg-rare-fraction {fraction:g}"
    alpha = (row["most"] + 0.5) / updates  # between the counts of those that are rare, and others
    return f"{text} or --agg-alpha {alpha:.3g}" if alpha < 1 else text


def prediction(change: float, s: float, tokens: int, epochs: float, unknown: float) -> str:
    """What `BEST` changes, in words: by the rule, as a relative `change` of the perplexity, for W
    alone, and as it was measured, with a share s of forgotten targets and training `tokens`. `unknown` is the
    share of the targets of another split that never occur in training."""
    if not s:
        return "nothing is forgotten: keep β₂"
    if change >= 0:
        return f"s = {s:.1%}: no larger β₂ was measured: keep β₂"
    measured = f"s above {max(MEASURED_CHANGES)[1]}% was never measured"
    for (low, high), (least, most) in MEASURED_CHANGES.items():
        if low <= 100 * s < high:
            measured = f"with s of {low}% to {high}%, {least:+}% to {most:+}% was measured"
    if s < 0.01:
        measured = "with s below 1%, nearly nothing was gained: keep β₂"
    rule = f"s = {s:.1%}: β₂ = {BEST} changes the perplexity by {change:+.1%} by the rule"
    if -change < MOST_BY_W:  # in nats, half the root of the rule's gain (docs/rule.md)
        rule += f", of W alone by {math.expm1(-math.sqrt(-math.log1p(change)) / 2):+.1%}"
    said = [rule, measured]
    if unknown > MOST_UNKNOWN:
        said.append(f"without the {unknown:.1%} of targets that never occur in training")
    if tokens < FEWEST_TOKENS:
        said.append(f"unreliable below {FEWEST_TOKENS:,} tokens")
    if epochs > MOST_EPOCHS:
        said.append(f"half as much with more than {MOST_EPOCHS} epochs")
    return "; ".join(said)
