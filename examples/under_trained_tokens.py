"""Finds tokens of which a model learned nothing ("glitch tokens") in its weights alone;
docs/tokens.md explains how.

    python examples/under_trained_tokens.py models/gpt2 --train-text wiki.train.tokens
    python examples/under_trained_tokens.py runs/mle --data data-bin/wikitext-2
    python examples/under_trained_tokens.py model.safetensors --matrix model.embed_tokens.weight --unused 50258 50259

Of one model, of transformers or a tied one of fairseq-train without gates, it prints the tokens
that are most like those that are known to be unused. The threshold is the largest value of a known
unused token, so that n of them find n/(n + 1) of the others on average; with fewer than three, it
is the value that 2% of the tokens do not exceed. A low norm alone has many false alarms: a token is
under-trained if the model cannot repeat it when it is asked to.

Reference: Land and Bartolo (2024), "Fishing for Magikarp".
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from agg_fairseq.checkpoints import Checkpoint, EmbeddingSource, open_models
from agg_fairseq.errors import UserError, fail
from agg_fairseq.evaluation.inputs import load_vocabulary
from agg_fairseq.result import format_table

RESERVED = 1e-2
"""Rows are those that `resize_token_embeddings` set to the mean, if their distances from it are at
most this part of the average distance."""
# in the middle between the distance of equal directions, 0, and that expected of random ones, 1
ALIKE = 0.5
FEWEST = 3  # unused tokens that must be known for them to set the threshold
GATED = ("agg", "agps", "freeze_rare")
SHARE = 0.02  # of the tokens that are below the threshold otherwise, as Land and Bartolo take it


class Indicator(NamedTuple):
    """How much each token is like those that are known to be unused."""

    name: str  # distance or norm
    values: Tensor  # (V,) float64, low for tokens that are alike
    threshold: float
    is_known: Tensor  # (V,) bool


def unused_distance(weight: Tensor, unused: Sequence[int]) -> Tensor:
    """1 − cos(w_k, Σ_u w_u) over the unused tokens u ≠ k: (V,) float64 in [0, 2]; 0 for a row of
    zeros.

    The softmax pushes the rows of all tokens that are never a target the same way, away from the
    features, so that they end up side by side. A row that has moved elsewhere belongs to a token
    that the model has learned.

    Land and Bartolo also remove the first principal direction of all rows, in case they share a
    constant part. Where many tokens are rare, that is the very direction in which unused rows lie:
    without it, unused and seen tokens are confused, so it is kept, as in the program that they
    published.
    """
    weight = weight.double()
    known = weight[list(unused)]
    total = known.sum(0)
    distances = 1 - cosine_similarity(weight, total, dim=1)
    if len(known) > 1:
        distances[list(unused)] = 1 - cosine_similarity(known, total - known, dim=1)
    return distances.clamp(min=0).masked_fill(~weight.any(dim=1), 0)


def indicator(model: EmbeddingSource, unused: Sequence[int]) -> Indicator:
    """The distance to the unused rows if the input embedding is the output layer too, else the norm
    of the input rows.

    It is also the norm if the unused rows are not alike, since gates leave them where they began,
    or if fewer than two are known. Unused rows that `resize_token_embeddings` set to the mean of the
    others were in no training, and say nothing. A model of fairseq is refused where the norm would be taken,
    since its rows begin with a norm of about 1, as trained rows have; and if it was trained with
    gates, which spare special tokens, the unused ones that are known.
    """
    embedding = model.output_embedding
    if not set(unused) <= set(range(len(embedding.saved))):
        raise UserError(
            f"--unused: found {unused}; expected rows from 0 to "
            f"{len(embedding.saved) - 1} of {model}"
        )
    is_known = torch.zeros(len(embedding.saved), dtype=torch.bool)
    is_known[list(unused)] = True
    weight, is_trained = embedding.weight, is_known.clone()
    if not is_known.all():
        distances = (weight - weight[~is_known].mean(0)).norm(dim=1)
        is_trained &= distances > RESERVED * distances[~is_known].mean()
    name, values = "norm", None
    if embedding.tied is not False and weight[is_trained].any(dim=1).sum() > 1:
        values = unused_distance(weight, is_trained.nonzero().flatten().tolist())
        name = "distance" if values[is_trained].median() < ALIKE else "norm"
    if isinstance(model, Checkpoint) and (
        name == "norm" or model.options("criterion").get("_name") in GATED
    ):
        raise UserError(
            f"{model}: expected tied embeddings, trained without gates, and two unused "
            "rows that are alike"
        )
    if name == "norm":
        inputs = model.input_embedding.float() if embedding.tied is False else weight
        values = inputs.norm(dim=1).double()
    if len(values) != len(is_known):
        raise UserError(
            f"{model}: found {len(values)} input and {len(is_known)} output "
            "embeddings; expected as many"
        )
    is_enough = is_trained.sum() >= FEWEST
    threshold = values[is_trained].max() if is_enough else values[~is_known].quantile(SHARE)
    return Indicator(name, values, threshold.item(), is_known)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tokens below the threshold, or the lowest."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", help="checkpoint or run of fairseq-train, folder or file of transformers"
    )
    parser.add_argument("--data", help="of a model of fairseq: its folder of fairseq-preprocess")
    parser.add_argument(
        "--train-text", help="of a model of transformers: a text in which the tokens are counted"
    )
    parser.add_argument(
        "--matrix", metavar="PARAMETER", help="to look at, instead of the output embedding"
    )
    parser.add_argument(
        "--unused", type=int, nargs="+", metavar="ROW", help="(default: those the vocabulary knows)"
    )
    parser.add_argument(
        "--top", type=int, default=20, metavar="N", help="tokens to print (default: 20)"
    )
    options = parser.parse_args(arguments)
    try:
        ((_, model),) = models = open_models([options.model], matrix=options.matrix).items()
        vocabulary = None
        if isinstance(model, Checkpoint) or model.tokenizer_file.exists():
            vocabulary = load_vocabulary(dict(models), options.data, options.train_text)
        elif options.data or options.train_text:
            raise UserError(
                f"{model.tokenizer_file}: found no such file; expected the tokenizer, "
                "to count tokens by"
            )
        unused = sorted(
            set(options.unused or (vocabulary.unused if vocabulary is not None else []))
        )
        name, values, threshold, is_known = indicator(model, unused)
    except (UserError, OSError, UnicodeError) as error:
        fail(str(error))
    counts = None if vocabulary is None else vocabulary.counts
    rows = [row for row in values.argsort(stable=True).tolist() if not is_known[row]]
    below = int((values[rows] <= threshold).sum())
    print(
        f"{below:,} of {len(rows):,} tokens have a {name} of at most {threshold:.3f} "
        f"({len(unused)} known unused)\n"
    )
    lines = []
    for row in rows[: options.top]:
        token = None if vocabulary is None else repr(vocabulary.tokens[row])
        lines.append(
            [row, token, f"{values[row]:.3f}", None if counts is None else f"{int(counts[row]):,}"]
        )
    print(format_table(["row", "token", name, "count"], lines))


if __name__ == "__main__":
    main()
