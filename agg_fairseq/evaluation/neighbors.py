"""The tokens whose output embeddings are nearest to those of words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..checkpoints import EmbeddingSource, Models
from ..data.subwords import WORDS, TokenizerOptions
from ..errors import UserError
from ..metrics import nearest_neighbors, word_vectors
from ..names import UNSEEN
from ..result import Result
from .inputs import frequency_settings, load_vocabulary, matrix_setting

MARKS = {"rare": "†", UNSEEN: "‡"}  # what follows a token of the group in the table


def neighbors(
    models: Models,
    data: str | Path | None = None,
    *,
    train_text: str | Path | None = None,
    words: Sequence[str],
    topk: int = 5,
    groups: str = "types",
    tokenizer: TokenizerOptions = WORDS,
) -> Result:
    """Finds the tokens whose output embeddings are nearest to that of a word, by cosine.

    Args:
        words: words whose neighbors are shown.
        topk: number of neighbors.
    """
    vocabulary = load_vocabulary(models, data, train_text)
    word_tokenizer = vocabulary.word_tokenizer(tokenizer)
    members = None if vocabulary.counts is None else vocabulary.groups(groups)
    word_tokens = {}
    for word in words:
        word_tokens[word] = word_tokenizer.indices(word)
        if not word_tokens[word]:
            raise UserError(
                f"--words: found {word!r}, which the vocabulary has not as a word; check --bpe"
            )

    def describe(index: int) -> dict[str, Any]:
        token, count, group = vocabulary.tokens[index], None, None
        if members is not None:
            count = int(vocabulary.counts[index])
            if members.group_ids[index] >= 0:
                group = members.names[members.group_ids[index]]
        named = {"token": token, "readable": word_tokenizer.readable(token), "index": index}
        return named | {"count": count, "group": group}

    nearest = {}
    for name, model in models.items():
        nearest[name] = _nearest(model, word_tokens, topk, vocabulary.special_ids)
    ranks = list(map(str, range(1, topk + 1)))
    rows = {}
    for number, (word, tokens) in enumerate(word_tokens.items()):
        described = list(map(describe, tokens))
        title = " ".join(map(_shown, described))
        if len(tokens) > 1:
            title = f"{word} (mean of {title})"
        elif (title, next(iter(models))) in rows:  # the tokenizer makes the same token of two words
            title = f"{word} ({title})"
        for name, model in models.items():
            near, cells = [], {}
            for rank, (index, cosine) in zip(ranks, nearest[name][number], strict=False):
                near.append({"cosine": cosine, **describe(index)})
                cells[rank] = f"{_shown(near[-1])} ({cosine:.2f})"
            rows[title, name] = {
                "neighbor": cells,
                "word": word,
                "tokens": described,
                "path": str(model),
                "neighbors": near,
            }
    settings = {
        "matrix": matrix_setting(models),
        "bpe": word_tokenizer.kind,
        "word": "mean-of-tokens",
        "cosine": True,
        "neighbors": "all-but-own,special-and-filling-tokens",
        **frequency_settings(data, train_text, groups),
        **{mark: None if members is None else group for group, mark in MARKS.items()},
    }
    facts = {"groups": members and members.sizes()}
    return Result(rows, {"neighbor": ranks}, settings, facts, ("", "checkpoint"))


def _nearest(
    model: EmbeddingSource, word_tokens: Mapping[str, list[int]], topk: int, special: list[int]
) -> list[list[tuple[int, float]]]:
    """The neighbors of each word and their cosines, as of `metrics.nearest_neighbors`."""
    weight = model.output_embedding.weight
    vectors = word_vectors(weight, list(word_tokens.values()))
    for word, vector in zip(word_tokens, vectors, strict=True):
        if not vector.any():
            raise UserError(f"{model}: found only zeros as an embedding of {word!r}; leave it out")
    excluded = [[*special, *tokens] for tokens in word_tokens.values()]
    return nearest_neighbors(weight, vectors, topk, excluded)


def _shown(token: Mapping[str, Any]) -> str:
    """A token as the table shows it."""
    return token["readable"] + MARKS.get(token["group"], "")
