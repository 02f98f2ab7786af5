"""Shares of rare tokens in a text, and of those that Adam forgets, before anything is trained."""

import math
from pathlib import Path

from torch import Tensor

from ..data.binarized import count_tokens, folders
from ..data.tokenizer_vocabulary import TokenizerVocabulary
from ..data.vocabulary import GROUPINGS, BinarizedVocabulary, Vocabulary
from ..errors import UserError
from ..functional import forgetting, forgotten, rarest
from ..metrics.groups import GROUPS, UNSEEN
from ..result import Result

BETAS, BEST = (0.95, 0.98, 0.99, 0.999), 0.999
FEWEST_TOKENS, MOST_EPOCHS, MOST_UNKNOWN, LEAST_SHARE = 100_000, 8, 0.005, 0.05
"""Where the rule holds (docs/rule.md): training tokens, epochs, share of unknown targets, and s."""


def group_shares(
    data: str | Path,
    *,
    tokenizer: str | Path | None = None,
    tokens_per_update: int | None = None,
    beta2: float | None = None,
    epochs: float = 1,
    rare_fraction: float = 0.3,
    groups: str = "types",
) -> Result:
    """Shows how much of a text is rare, before anything is trained.

    Args:
        data: folder written by `fairseq-preprocess`, with the training split; of a parallel one,
            the target side. With `tokenizer`, a training text in UTF-8.
        tokenizer: tokenizer.json of Hugging Face that encodes the text, or the folder that it is
            in.
        tokens_per_update: target tokens of an update, on all workers; None: without the rows and
            the column of β₂.
        beta2: β₂ of Adam, in [0, 1), for a row of its own and for the setting `prediction`.
        epochs: of the training; the setting `prediction` says whether the rule was measured with so
            many.
        rare_fraction: of the last row, the share of the tokens that occur that is rare for AGG.

    Returns:
        Result: a row per group, for all tokens, and `rarest …`, with `types`, `fewest`, `most`,
        `target_share` by split, with those of valid and test that are in the folder; a row
        `unseen`, if there are tokens that never occur in training. With `tokens_per_update` also
        `updates_per_occurrence`, that of a token of mean frequency; rows `forgotten with …`, the
        tokens that Adam forgets with this β₂ (their `target_share` is s); and the predicted
        `change_by_beta2` of the perplexity with 0.999 instead.

    Reference: Yu et al. (2022), Sec. 3.1; Yu et al. (2021), Sec. 2.1; for β₂,
        `functional.adam_memory`.
    """
    if beta2 is not None and (tokens_per_update is None or not 0 <= beta2 < 1):
        raise UserError(
            f"--beta2: expected a value in [0, 1), with --tokens-per-update, got {beta2}"
        )
    if not 0 < rare_fraction < 1 or (tokens_per_update is not None and tokens_per_update < 1):
        found = f"--rare-fraction {rare_fraction}, --tokens-per-update {tokens_per_update}"
        raise UserError(
            f"found {found}; expected a share of the vocabulary in (0, 1), and at least one token"
        )
    if tokenizer is None and Path(data).is_file():
        raise UserError(f"--tokenizer: found none for the text {data}; name its tokenizer.json")
    if tokenizer is None:
        from fairseq.data.indexed_dataset import infer_dataset_impl

        folder = folders(data)[0]
        is_parallel = any(folder.glob("train.*-*.*.bin")) and not (folder / "dict.txt").is_file()
        vocabulary: Vocabulary = BinarizedVocabulary.load(
            data, (None, None) if is_parallel else None
        )
        counts = {"train": vocabulary.counts}
        for split in ("valid", "test"):
            file = vocabulary.split.name.replace("train", split, 1)
            if infer_dataset_impl(str(folder / file)):
                counts[split] = count_tokens(data, vocabulary.dictionary, file)
    else:
        path = Path(tokenizer) / "tokenizer.json" if Path(tokenizer).is_dir() else Path(tokenizer)
        vocabulary = TokenizerVocabulary.load(path, None).counted_in(data)
        counts = {Path(data).name: vocabulary.counts}
    frequencies = vocabulary.counts
    by_frequency = vocabulary.groups(groups)
    members: dict[str, Tensor] = {group: by_frequency.members(group) for group in GROUPS}
    occurs = frequencies > 0
    members["total"] = occurs.nonzero().squeeze(1)  # special targets too
    gated = occurs & rarest(frequencies, rare_fraction, vocabulary.excluded)
    members[f"rarest {100 * rare_fraction:g}%"] = gated.nonzero().squeeze(1)
    elsewhere = sum(counts.values()) > 0  # special targets of another split too
    unseen = ~occurs & (~vocabulary.excluded | elsewhere)
    if unseen.any():
        members[UNSEEN] = unseen.nonzero().squeeze(1)
    unknown = max((in_split[~occurs].sum() / in_split.sum()).item() for in_split in counts.values())
    change = {}
    if tokens_per_update is not None:
        best = forgetting(frequencies, tokens_per_update, BEST)
        for beta in sorted({*BETAS, *([] if beta2 is None else [beta2])}):
            name = f"forgotten with β₂ = {beta:g}"
            members[name] = forgotten(frequencies, tokens_per_update, beta).nonzero().squeeze(1)
            change[name] = math.expm1(best - forgetting(frequencies, tokens_per_update, beta))

    rows = {}
    for name, tokens in members.items():
        of_group = frequencies[tokens]
        row = rows[name] = {
            "types": len(tokens),
            "fewest": int(of_group.min()) if len(tokens) else None,
            "most": int(of_group.max()) if len(tokens) else None,
            "target_share": {
                split: (in_split[tokens].sum() / in_split.sum()).item()
                for split, in_split in counts.items()
            },
        }
        if tokens_per_update is not None:
            per_update = (
                tokens_per_update
                * of_group.sum().item()
                / frequencies.sum().item()
                / max(1, len(tokens))
            )
            row["updates_per_occurrence"] = 1 / per_update if per_update else None
        if name in change:
            row["change_by_beta2"] = change[name]
    settings = {
        "counted-in": "train" if tokenizer is None else Path(data).name,
        "tokens": int(frequencies.sum()),
        "tokens-per-update": tokens_per_update,
        "groups": GROUPINGS[groups],
    }
    if beta2 is not None:
        name = f"forgotten with β₂ = {beta2:g}"
        s = frequencies[members[name]].sum().item() / settings["tokens"]
        said = prediction(change[name], s, settings["tokens"], epochs, unknown)
        settings |= {"epochs": f"{epochs:g}", "prediction": said}
    columns = {"types": [""], "fewest": [""], "most": [""], "target_share": list(counts)}
    if tokens_per_update is not None:
        columns |= {"updates_per_occurrence": [""], "change_by_beta2": [""]}
    return Result(rows, columns, settings)


def prediction(change: float, s: float, tokens: int, epochs: float, unknown: float) -> str:
    """The change of the perplexity by the rule, in words, for a text of so many training
    tokens.

    `s` is the share of the targets that is forgotten, `unknown` that of the targets of valid or
    test that never occur in training.
    """
    text = f"s = {s:.1%}: β₂ = {BEST} changes the perplexity by {change:+.1%}"
    if unknown > MOST_UNKNOWN:
        return f"{text}, without the {unknown:.1%} of targets that never occur in training, whose loss no rule predicts"
    if tokens < FEWEST_TOKENS:
        return f"{text}, unreliable below {FEWEST_TOKENS:,} tokens, of which little is learned about rare ones"
    if epochs > MOST_EPOCHS:
        return f"{text}, or half as much: more than {MOST_EPOCHS} epochs gain less"
    if 0 < s < LEAST_SHARE:
        return f"{text}, mostly more: below {LEAST_SHARE:.0%}, it was up to five times as much"
    return f"{text}, within a factor of two"
