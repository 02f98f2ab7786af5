"""Which tokens of models are degenerate or under-trained, from the weights alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from .. import metrics
from ..checkpoints.opening import EmbeddingSource
from ..checkpoints.transformers_model import PretrainedModel
from ..data.subwords import SPACE, escaped, word_starts
from ..errors import UserError
from ..result import Result, signature
from .inputs import frequencies_signature, load_embedding_vocabulary, matrix_signature

DISTANCE, NORM = "distance", "norm"
"""What tells under-trained tokens: the distance of the row to those of unused tokens, or the norm of the input row."""
SHARE = 0.02
"""The share of the vocabulary that is taken where no unused token sets the threshold, as Land and Bartolo (2024) do."""
CAUTION = (
    "These are candidates: a low norm alone has many false alarms. A token is under-trained if the model cannot repeat "
    "it when asked to."
)


def under_trained(
    models: Mapping[str, EmbeddingSource],
    data: str | Path | None = None,
    *,
    text: str | Path | None = None,
    unused: Sequence[int] | None = None,
    threshold: float | None = None,
    groups: str = "types",
) -> Result:
    """Ranks the tokens of models by how much their embeddings are like those of tokens that no training text had.

    Where the input embedding is the output layer too, the indicator is the distance to the mean row of unused tokens
    (`metrics.unused_distance`). Otherwise it is the norm of the row of the input embedding, which only the tokens of
    the training text change.

    Args:
        models: checkpoints of fairseq-train, or models of transformers, of one vocabulary.
        data: for checkpoints of fairseq-train, the folder written by `fairseq-preprocess`, with the training split.
        text: for models of transformers, a text in UTF-8, in which their tokens are counted.
        unused: rows of tokens that are known to be unused; None: those that the vocabulary knows, which are rows beyond
            the tokenizer, tokens named as unused or reserved, bytes that no UTF-8 has, and fillers of a dictionary.
        threshold: tokens with a smaller or equal indicator are under-trained; None: the largest value of a known unused
            token, each compared with the others; without two of these, the value that 2% of the tokens do not exceed.
        groups: frequent, medium and rare tokens by one of `data.vocabulary.GROUPINGS`.

    Returns:
        Result: a row per model. Details: `groups`, their sizes or None; and `models`, for each `name`, `path`,
        `indicator`, `matrix`, `unused` (rows), `threshold`, `below` (how many tokens, known unused ones left out) and
        `tokens`, all of them, the worst first, each with `id`, `token`, `readable`, `norm` (of the input embedding),
        `distance` (None where it is not defined), `count`, `group` (None where they are not known), `unused` and
        `below`.

    Raises:
        UserError: as `load_embedding_vocabulary`; a row of `unused` is not there; or a model whose embeddings are tied
            has no unused token that is known.

    Reference: Land and Bartolo (2024).
    """
    vocabulary = None
    if data is not None or text is not None or any(map(_has_tokens, models.values())):
        vocabulary = load_embedding_vocabulary(models, data, text)
    members = None if vocabulary is None or vocabulary.counts is None else vocabulary.groups(groups)
    byte_level = vocabulary is not None and SPACE in word_starts(vocabulary.tokens)
    rows, details = {}, []
    for title, model in models.items():
        embedding = model.output_embedding
        size = len(embedding.saved)
        known = sorted(set(unused if unused is not None else [] if vocabulary is None else vocabulary.unused))
        beyond = next((row for row in known if not 0 <= row < size), None)
        if beyond is not None:
            raise UserError(f"--unused: found {beyond}; expected rows from 0 to {size - 1} of {model}")
        kind = DISTANCE if embedding.tied or (embedding.tied is None and known) else NORM
        if kind == DISTANCE and not known:
            raise UserError(
                f"{model}: found no token that is known to be unused, with which the rows of tied embeddings are "
                "compared; give --unused IDS"
            )
        of_inputs = model.input_embedding.float() if embedding.tied is False else embedding.weight
        values = {
            NORM: of_inputs.norm(dim=1).double(),
            DISTANCE: metrics.unused_distance(embedding.weight, known) if known else torch.full((size,), torch.nan),
        }
        is_known = torch.zeros(size, dtype=torch.bool)
        is_known[known] = True
        limit = _threshold(values[kind], is_known) if threshold is None else threshold
        is_below = values[kind] <= limit
        tokens = []
        for row in values[kind].nan_to_num(nan=torch.inf).argsort(stable=True).tolist():
            token = f"<row {row}>" if vocabulary is None else vocabulary.tokens[row]
            group = -1 if members is None else int(members.of_token[row])
            tokens.append(
                {
                    "id": row,
                    "token": token,
                    "readable": escaped(token, byte_level=byte_level),
                    **{name: None if of[row].isnan() else of[row].item() for name, of in values.items()},
                    "count": None if members is None else int(vocabulary.counts[row]),
                    "group": None if group < 0 else members.names[group],
                    "unused": bool(is_known[row]),
                    "below": bool(is_below[row]),
                }
            )
        below, others = int((is_below & ~is_known).sum()), size - len(known)
        rows[title] = {
            "indicator": kind, "known unused": len(known), "threshold": limit, "tokens": others, "under-trained": below,
            "under-trained (%)": 100 * below / max(1, others),
        }  # fmt: skip
        details.append(
            {
                "name": title, "path": str(model), "indicator": kind, "matrix": embedding.description, "unused": known,
                "threshold": limit, "below": below, "tokens": tokens,
            }
        )  # fmt: skip
    return Result.of(
        rows,
        signature(
            f"matrix:{matrix_signature(models)}",
            "distance:to-mean-of-unused,without-first-principal-direction",
            f"unused:{'of-the-vocabulary' if unused is None else 'given'}",
            f"threshold:{'largest-of-unused' if threshold is None else f'{threshold:g}'}",
            *frequencies_signature(data, text, groups),
        ),
        {"groups": members and members.sizes(), "models": details},
    )


def worst_tokens(result: Result, count: int) -> Result:
    """The first tokens of each model in what `under_trained` returned, those that are known to be unused left out."""
    rows = {}
    for model in result.details["models"]:
        for token in [one for one in model["tokens"] if not one["unused"]][:count]:
            shown = {title: token[title] for title in (NORM, DISTANCE, "count", "group")}
            shown["under-trained"] = "yes" if token["below"] else "no"
            rows[model["name"], str(token["id"]), token["readable"]] = shown
    return Result.of(rows, result.signature, labels=("", "id", "token"))


def _has_tokens(model: EmbeddingSource) -> bool:
    """Whether the names of a model's tokens can be known: not those of a single file of weights."""
    return not isinstance(model, PretrainedModel) or model.tokenizer_file.exists()


def _threshold(indicator: torch.Tensor, is_known: torch.Tensor) -> float:
    """The largest value of a known unused token, if there are two of them, which are compared with each other."""
    known = indicator[is_known & ~indicator.isnan()]
    if len(known) > 1:
        return known.max().item()
    return indicator[~is_known & ~indicator.isnan()].quantile(SHARE).item()
