"""Which tokens of models are degenerate or under-trained, from the weights alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from .. import metrics
from ..checkpoints import Checkpoint, EmbeddingSource
from ..data.subwords import WORDS, TokenizerOptions
from ..errors import UserError
from ..result import Result
from .inputs import frequency_settings, load_embedding_vocabulary, matrix_setting

DISTANCE, NORM = "distance", "norm"
"""What tells under-trained tokens: the distance of the row to those of unused tokens, or the norm of the input row."""
ALIKE = 0.5
"""Unused rows with a larger median distance to one another were not pushed the same way: they are where they began.
Chosen by hand: the middle between the distance of equal directions, 0, and that expected of random ones, 1."""
COLUMNS = ("indicator", "known_unused", "threshold", "threshold_reason", "others", "below", "below_share")
FEWEST = 3  # unused tokens that must be known for them to set the threshold
SHOWN = 20  # tokens of each model in the table of the worst
SHARE = 0.02  # the share of the vocabulary that is taken otherwise, as Land and Bartolo (2024) do
CAUTION = (
    "Tokens below the threshold are candidates, and a low norm alone has many false alarms: a token is under-trained "
    "if the model cannot repeat it when it is asked to."
)


def under_trained(
    models: Mapping[str, EmbeddingSource],
    data: str | Path | None = None,
    *,
    train_text: str | Path | None = None,
    unused: Sequence[int] | None = None,
    groups: str = "types",
    tokenizer: TokenizerOptions = WORDS,
) -> Result:
    """Ranks the tokens of models by how much their embeddings are like those of tokens that no training text had.

    The indicator is the "distance" to the sum of the rows of unused tokens (`metrics.unused_distance`) if the input
    embedding is the output layer too, whose softmax pushes all unused rows the same way. It is the "norm" of the row of
    the input embedding if that is separate, since only the tokens of the training text change it, or if the unused rows
    are not alike, since the gates of AGG leave them where they began, or if none is known. The threshold is the largest
    value of a known unused token, so that n of these find n/(n + 1) of the others on average; if fewer than three are
    known, the value that 2% of the tokens do not exceed.

    Args:
        unused: rows of tokens that are known to be unused; None: those that the vocabulary knows (`Vocabulary.unused`).

    Returns:
        Result: a row per model, with `indicator`, `known_unused`, `threshold`, `threshold_reason`, `others` (tokens
        that are not known to be unused), and `below` and `below_share` of them; beside the measures `path`, `matrix`,
        `unused` (rows) and `tokens`, all of them, the worst first, each with `id`, `token`, `readable`, `norm` (of the
        input embedding), `distance` (None without known unused tokens), `count`, `group` (None where they are not
        known), `unused` and `below`. Facts: `groups`, their sizes or None.

    Reference: Land and Bartolo (2024).
    """
    vocabulary = members = None
    has_tokens = any(isinstance(model, Checkpoint) or model.tokenizer_file.exists() for model in models.values())
    if data is not None or train_text is not None or has_tokens:
        vocabulary = load_embedding_vocabulary(models, data, train_text)
        readable = vocabulary.word_tokenizer(tokenizer).readable
        members = None if vocabulary.counts is None else vocabulary.groups(groups)

    rows = {}
    for name, model in models.items():
        embedding = model.output_embedding
        size = len(embedding.saved)
        known = sorted(set(unused if unused is not None else vocabulary.unused if vocabulary is not None else []))
        if known and not 0 <= known[0] <= known[-1] < size:
            raise UserError(f"--unused: found {known}; expected rows from 0 to {size - 1} of {model}")
        inputs = model.input_embedding.float() if embedding.tied is False else embedding.weight
        norm = inputs.norm(dim=1).double()
        distance = metrics.unused_distance(embedding.weight, known) if known else None
        is_known = torch.zeros(size, dtype=torch.bool)
        is_known[known] = True
        has_direction = known and embedding.tied is not False and distance[is_known].median() < ALIKE
        chosen = DISTANCE if has_direction else NORM
        values = norm if chosen == NORM else distance
        if len(known) >= FEWEST:
            limit, reason = values[is_known].max().item(), "largest of the unused"
        else:
            limit, reason = values[~is_known].quantile(SHARE).item(), f"{SHARE:.0%} of the tokens"
        is_below = values <= limit

        tokens = []
        for row in values.argsort(stable=True).tolist():
            token = f"<row {row}>" if vocabulary is None else vocabulary.tokens[row]
            group = -1 if members is None else int(members.of_token[row])
            tokens.append({
                "id": row, "token": token,
                "readable": token if vocabulary is None else repr(readable(token)),
                NORM: norm[row].item(), DISTANCE: None if distance is None else distance[row].item(),
                "count": None if members is None else int(vocabulary.counts[row]),
                "group": None if group < 0 else members.names[group],
                "unused": bool(is_known[row]), "below": bool(is_below[row]),
            })  # fmt: skip
        below, others = int((is_below & ~is_known).sum()), size - len(known)
        rows[name] = {
            "path": str(model), "matrix": embedding.description, "indicator": chosen, "known_unused": len(known),
            "threshold": limit, "threshold_reason": reason, "others": others, "below": below,
            "below_share": below / max(1, others), "unused": known, "tokens": tokens,
        }  # fmt: skip
    settings = {
        "matrix": matrix_setting(models),
        "unused": "of-the-vocabulary" if unused is None else "given",
        **frequency_settings(data, train_text, groups),
    }
    return Result(rows, dict.fromkeys(COLUMNS, [""]), settings, {"groups": members and members.sizes()})


def worst_tokens(result: Result) -> Result:
    """The 20 worst tokens of each model in what `under_trained` returned that are not known to be unused."""
    rows = {}
    for name, row in result.rows.items():
        for token in [token for token in row["tokens"] if not token["unused"]][:SHOWN]:
            rows[name, str(token["id"]), token["readable"]] = {**token, "below": "yes" if token["below"] else "no"}
    columns = dict.fromkeys((NORM, DISTANCE, "count", "group", "below"), [""])
    return Result(rows, columns, result.settings, labels=("", "id", "token"))
