"""How much of a text is rare: sizes, frequencies and shares of the frequency groups, before anything is trained."""

from pathlib import Path

from torch import Tensor

from ..data.binarized import count_tokens, split_parts
from ..data.tokenizer_vocabulary import TokenizerVocabulary
from ..data.vocabulary import GROUPINGS, BinarizedVocabulary, Vocabulary
from ..errors import UserError
from ..functional import least_beta2, rarest
from ..metrics.groups import GROUPS
from ..result import Result


def group_shares(
    data: str | Path,
    *,
    tokenizer: str | Path | None = None,
    tokens_per_update: int | None = None,
    rare_fraction: float = 0.3,
    groups: str = "types",
) -> Result:
    """Shows how much of a text is rare, before anything is trained.

    Args:
        data: folder written by `fairseq-preprocess`, with the training split; of a parallel one, the target side. With
            `tokenizer`, a training text in UTF-8.
        tokenizer: tokenizer.json of Hugging Face that encodes the text, or the folder that it is in.
        tokens_per_update: target tokens of an update, on all workers; None: without the two columns that need it.
        rare_fraction: of the last row, the share of the vocabulary that AGG treats as rare.

    Returns:
        Result: a row per group, for all tokens, and `rarest …`, with `types`, `fewest`, `most`, `target_share` by
        split, with those of valid and test that are in the folder, and with `tokens_per_update` also
        `updates_per_occurrence` and `least_beta2`.

    Reference: Yu et al. (2022), Sec. 3.1; Yu et al. (2021), Sec. 2.1.
    """
    if Path(data).is_dir() != (tokenizer is None):
        found = "a folder, and --tokenizer" if tokenizer else "no folder, and no --tokenizer"
        raise UserError(f"{data}: found {found}; expected a folder of fairseq-preprocess, or a text with --tokenizer")
    if not 0 < rare_fraction < 1:
        raise UserError(f"--rare-fraction: expected a value in (0, 1), got {rare_fraction}")
    if tokens_per_update is not None and tokens_per_update < 1:
        raise UserError(f"--tokens-per-update: expected at least 1, got {tokens_per_update}")
    if tokenizer is None:
        is_parallel = any(Path(data).glob("train.*-*.*.bin")) and not (Path(data) / "dict.txt").is_file()
        vocabulary: Vocabulary = BinarizedVocabulary.load(data, (None, None) if is_parallel else None)
        counts = {"train": vocabulary.counts}
        for split in ("valid", "test"):
            file = vocabulary.split.name.replace("train", split, 1)
            if split_parts(data, file, [""]):
                counts[split] = count_tokens(data, vocabulary.dictionary, file)
    else:
        path = Path(tokenizer) / "tokenizer.json" if Path(tokenizer).is_dir() else Path(tokenizer)
        vocabulary = TokenizerVocabulary.load(path, None).counted_in(data)
        counts = {Path(data).name: vocabulary.counts}
    frequencies = vocabulary.counts
    by_frequency = vocabulary.groups(groups)
    members: dict[str, Tensor] = {group: by_frequency.members(group) for group in GROUPS}
    members["total"] = (~vocabulary.excluded | (frequencies > 0)).nonzero().squeeze(1)  # special targets too
    gated = rarest(frequencies, rare_fraction, vocabulary.excluded)
    members[f"rarest {100 * rare_fraction:g}%"] = gated.nonzero().squeeze(1)

    rows = {}
    for name, tokens in members.items():
        of_group = frequencies[tokens]
        row = rows[name] = {
            "types": len(tokens),
            "fewest": int(of_group.min()) if len(tokens) else None,
            "most": int(of_group.max()) if len(tokens) else None,
            "target_share": {
                split: (in_split[tokens].sum() / in_split.sum()).item() for split, in_split in counts.items()
            },
        }
        if tokens_per_update is not None:
            per_update = tokens_per_update * of_group.sum().item() / frequencies.sum().item() / max(1, len(tokens))
            row["updates_per_occurrence"] = 1 / per_update if per_update else None
            row["least_beta2"] = least_beta2(1 / per_update) if per_update else None
    settings = {
        "counted-in": "train" if tokenizer is None else Path(data).name,
        "tokens": int(frequencies.sum()),
        "tokens-per-update": tokens_per_update,
        "groups": GROUPINGS[groups],
    }
    columns = {"types": [""], "fewest": [""], "most": [""], "target_share": list(counts)}
    if tokens_per_update is not None:
        columns |= {"updates_per_occurrence": [""], "least_beta2": [""]}
    return Result(rows, columns, settings)
