"""Words in output embeddings: their nearest tokens, and agreement of their cosines with human scores."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from .. import metrics
from ..checkpoints import EmbeddingSource, Models
from ..data.subwords import WORDS, TokenizerOptions
from ..errors import UserError
from ..files import read_lines
from ..names import UNSEEN, unique_names
from ..result import Result
from .inputs import check_row_names, frequency_settings, load_vocabulary, matrix_setting

MARKS = {"rare": "†", UNSEEN: "‡"}  # what follows a token of the group in the table of neighbors
DATASETS = ("MEN", "WS353", "RG65", "RW")
LINES = "lines of word<TAB>word<TAB>score"
PAIRS = "pairs"  # the row with the numbers of covered pairs


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
    vectors = metrics.word_vectors(weight, list(word_tokens.values()))
    for word, vector in zip(word_tokens, vectors, strict=True):
        if not vector.any():
            raise UserError(f"{model}: found only zeros as an embedding of {word!r}; leave it out")
    excluded = [[*special, *tokens] for tokens in word_tokens.values()]
    return metrics.nearest_neighbors(weight, vectors, topk, excluded)


def _shown(token: Mapping[str, Any]) -> str:
    """A token as the table shows it."""
    return token["readable"] + MARKS.get(token["group"], "")


def word_similarity(
    models: Models,
    data: str | Path | None = None,
    *,
    datasets: Sequence[str | Path],
    tokenizer: TokenizerOptions = WORDS,
    as_published: bool = False,
) -> Result:
    """Compares the similarity of words in the output embeddings of models with human scores.

    Args:
        datasets: files with a line word<TAB>word<TAB>score for each pair, the scores on any scale;
            or names, MEN, WS353, RG65, RW, of $AGG_DATA/word-similarity/NAME.txt.
        as_published: follow the released code of Yu et al. (2022), `eval_emb.py`: GPT-2's pieces of
            a word without the space before it, `<unk>` for tokens that the dictionary lacks, no
            lower case, and all pairs whose cosine is defined.
    """
    check_row_names(models, PAIRS, *(f"{PAIRS} of {name}" for name in models))
    tokenizer = replace(tokenizer, after_space=not as_published)
    word_tokenizer = load_vocabulary(models, data).word_tokenizer(tokenizer)

    @cache
    def tokens(word: str) -> list[int]:
        if as_published:
            indices = []
            for token in word_tokenizer.split(word):
                indices.append(word_tokenizer.index.get(token, word_tokenizer.unknown))
            return [] if None in indices else indices
        return word_tokenizer.indices(word) or word_tokenizer.indices(word.lower())

    folder = Path(os.environ.get("AGG_DATA", "$AGG_DATA")) / "word-similarity"
    files = []
    for name in dict.fromkeys(datasets):
        files.append(folder / f"{name}.txt" if name in DATASETS else Path(name))
    pairs_by_column, sizes = {}, {}
    for key, path in zip(unique_names(files, None, "stem"), files, strict=True):
        # the tokens of the first words, of the second words, and the scores
        first, second, scores = pairs_by_column[key] = [], [], []
        for word, other, score in _read_pairs(path):
            first.append(tokens(word))
            second.append(tokens(other))
            scores.append(score)
        sizes[key] = len(scores)
    rows, covered = {}, {}
    for name, model in models.items():
        weight = model.output_embedding.weight
        row = rows[name] = {"path": str(model), "spearman": {}, "covered": {}}
        covered[name] = {}
        for key, pairs in pairs_by_column.items():
            correlation, number = metrics.word_similarity(weight, *pairs)
            row["spearman"][key], row["covered"][key] = correlation, number
            covered[name][key] = f"{number:,}/{sizes[key]:,}"
    first = next(iter(covered.values()))
    if all(cells == first for cells in covered.values()):
        rows[PAIRS] = {"spearman": first}
    else:  # embeddings of zeros set the models apart
        for name, cells in covered.items():
            rows[f"{PAIRS} of {name}"] = {"spearman": cells}
    settings = {
        "matrix": matrix_setting(models),
        "datasets": ",".join(sizes),
        "bpe": word_tokenizer.kind,
        "word": "mean-of-tokens",
    }
    if as_published:
        settings |= {"split": "without-space", "case": "as-written", "missing-tokens": "<unk>"}
    else:
        settings |= {"case": "as-written,else-lower", "uncovered-pairs": "left-out"}
    settings["cosine,spearman"] = True
    return Result(rows, {"spearman": list(sizes)}, settings, {"pairs": sizes})


def _read_pairs(path: Path) -> Iterator[tuple[str, str, float]]:
    count = 0
    for count, line in enumerate(read_lines(path, LINES), 1):
        try:
            first, second, score = line.split("\t")
            yield first.strip(), second.strip(), float(score)
        except ValueError:
            raise UserError(
                f"{path}, line {count}: found {line.strip()[:80]!r}; expected {LINES}"
            ) from None
    if count == 0:
        raise UserError(f"{path}: found no pairs; expected {LINES}")
