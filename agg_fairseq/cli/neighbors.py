"""Shows which tokens' output embeddings are nearest to a word's, by cosine.

A row per word and checkpoint, the nearest token first, with its cosine; `†` marks tokens that are rare in the training
split. The vector of a word of several tokens is the mean of their embeddings. Its own tokens, special ones and those
that fairseq fills a dictionary up with are not its neighbours. The dictionary of a translation model is that of the
target side; with a joined dictionary, words of both languages can be asked for and found. Without --words, three rare
tokens are shown: of those that are whole words of four letters or more, the most frequent.

    agg-fairseq neighbors runs/mle/checkpoint_best.pt runs/agg/checkpoint_best.pt --data data-bin/wikitext-2 \\
        --words homepage Werewolf policymakers
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from .. import __version__
from ..data.subwords import PIECES_SHARE, Splitter
from ..errors import UserError
from ..metrics import FrequencyGroups, nearest_neighbors, word_vectors
from .embeddings import GROUPINGS, Embeddings, Vocabulary, add_grouping, load_all
from .measured import Measured, measure_and_show
from .naming import names_of
from .tokenisers import add_tokeniser, splitter_of, tokeniser_files

MARK = "†"
CHOSEN = 3
FEWEST_LETTERS = 4
WORD_STARTS = ("▁", "Ġ")
"""How sentencepiece and GPT-2 mark a piece that begins a word."""

Neighbors = list[tuple[int, float]]


class NoWord(UserError):
    """No word was asked for, and there is none to choose."""


@dataclass(frozen=True)
class Word:
    """A word whose neighbours are looked for, and the places of its tokens in the dictionary."""

    word: str
    tokens: list[int]


@dataclass(frozen=True)
class Lexicon:
    """What is known about tokens."""

    vocabulary: Vocabulary
    groups: FrequencyGroups
    splitter: Splitter

    def describe(self, index: int) -> dict[str, Any]:
        """A token, as JSON has it."""
        group = int(self.groups.of_token[index])
        return {
            "token": self.vocabulary.dictionary[index],
            "readable": self.readable(index),
            "index": index,
            "count": int(self.vocabulary.counts[index]),
            "group": None if group < 0 else self.groups.names[group],
        }

    def readable(self, index: int) -> str:
        """A token, as people read it."""
        return self.splitter.readable(self.vocabulary.dictionary[index])

    def shown(self, index: int) -> str:
        """A token, as the table has it: marked if it is rare."""
        return self.readable(index) + MARK * (self.describe(index)["group"] == "rare")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("inputs", nargs="+", metavar="CKPT", help="checkpoints, compared side by side")
    parser.add_argument("--name", nargs="+", metavar="NAME", help="a name per checkpoint (default: its folder)")
    parser.add_argument(
        "--data", required=True, metavar="DATA", help="folder written by fairseq-preprocess, with the training split"
    )
    parser.add_argument("--words", nargs="+", metavar="WORD", help="whose neighbours (default: three rare words)")
    parser.add_argument("--topk", type=int, default=5, metavar="K", help="neighbours of each (default: 5)")
    add_grouping(parser)
    add_tokeniser(parser)
    parser.add_argument("--json", metavar="FILE", help="also write all numbers to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Finds the neighbours, prints the table and writes the JSON file."""
    measure_and_show(measure, arguments, [*arguments.inputs, arguments.data, *tokeniser_files(arguments)])


def measure(arguments: argparse.Namespace) -> Measured:
    """Finds the neighbours of every word in every checkpoint."""
    if arguments.topk < 1:
        raise UserError(f"--topk: expected at least 1, got {arguments.topk}")
    names = names_of(arguments.inputs, arguments.name)
    embeddings, vocabulary = load_all(arguments.inputs, arguments.data)
    if arguments.topk > len(vocabulary.dictionary):
        tokens = len(vocabulary.dictionary)
        raise UserError(f"--topk: found {arguments.topk}; expected at most {tokens}, the tokens of {arguments.data}")
    splitter = splitter_of(arguments, vocabulary.dictionary)
    lexicon = Lexicon(vocabulary, vocabulary.groups(arguments.groups), splitter)
    words = _asked(arguments.words, lexicon, arguments.data) if arguments.words else _rare_words(lexicon)
    progress = tqdm(embeddings, desc="neighbours", unit="checkpoint", disable=None, leave=False)
    found = [_neighbors(one, words, arguments.topk, vocabulary.no_words()) for one in progress]
    by_word = list(zip(*found, strict=True))
    return Measured(
        header=["", "checkpoint", *map(str, range(1, arguments.topk + 1))],
        rows=[row for pair in zip(words, by_word, strict=True) for row in _rows(*pair, names, lexicon, arguments.topk)],
        signature=_signature(embeddings, arguments.bpe, arguments.groups),
        values={
            "groups": lexicon.groups.sizes(),
            "words": [_values(*pair, names, arguments.inputs, lexicon) for pair in zip(words, by_word, strict=True)],
        },
    )


def _asked(asked: Sequence[str], lexicon: Lexicon, data: str) -> list[Word]:
    splitter, vocabulary = lexicon.splitter, lexicon.vocabulary
    no_words = {vocabulary.dictionary[index] for index in vocabulary.no_words()}
    words = [Word(word, splitter.indices(word)) for word in dict.fromkeys(asked)]
    for word in words:
        if word.word in no_words:
            raise UserError(f"--words: found {word.word!r}, no word but a token of fairseq's own; leave it out")
        if not word.tokens:
            raise UserError(
                f"--words: found {word.word!r}, in tokens {splitter(word.word)}, not all in the dictionary of {data}; "
                "expected a word of it, and the --bpe that the data was encoded with"
            )
    return words


def _rare_words(lexicon: Lexicon) -> list[Word]:
    """The most frequent rare tokens that are a word by themselves; of equally frequent ones the first."""
    counts, rare = lexicon.vocabulary.counts, lexicon.groups.members("rare")
    ranked = rare[counts[rare].argsort(descending=True, stable=True)].tolist()
    pieces = [lexicon.readable(index) for index in range(lexicon.vocabulary.dictionary.nspecial, len(counts))]
    starts = tuple(mark for mark in WORD_STARTS if _share(pieces, mark) >= PIECES_SHARE)
    found = (_whole_word(index, lexicon, starts) for index in ranked)
    words = list(itertools.islice(filter(None, found), CHOSEN))
    if not words:
        raise NoWord(
            f"--words: found no rare token that is a word of {FEWEST_LETTERS} letters or more; name words, or the "
            "--bpe that the data was encoded with"
        )
    return words


def _share(pieces: Sequence[str], mark: str) -> float:
    """How many of the pieces begin with a mark."""
    return sum(piece.startswith(mark) for piece in pieces) / max(len(pieces), 1)


def _whole_word(index: int, lexicon: Lexicon, starts: tuple[str, ...]) -> Word | None:
    """A token as a word, if it is a whole one: in a dictionary of pieces, those that begin one bear a mark."""
    token = lexicon.vocabulary.dictionary[index]
    piece = lexicon.readable(index)
    text = piece.lstrip("".join(starts))
    if len(text) < FEWEST_LETTERS or not text.isalpha() or (starts and not piece.startswith(starts)):
        return None
    return next((Word(word, [index]) for word in (text, token) if lexicon.splitter.indices(word) == [index]), None)


def _neighbors(embeddings: Embeddings, words: Sequence[Word], k: int, no_words: Sequence[int]) -> list[Neighbors]:
    """Of each word, the tokens `no_words` left out."""
    vectors = word_vectors(embeddings.weight, [word.tokens for word in words])
    for word, vector in zip(words, vectors, strict=True):
        if not vector.any():
            raise UserError(f"{embeddings.path}: found only zeros as an embedding of {word.word!r}; leave it out")
    excluded = [[*no_words, *word.tokens] for word in words]
    return nearest_neighbors(embeddings.weight, vectors, k, excluded)


def _rows(
    word: Word, found: Sequence[Neighbors], names: Sequence[str], lexicon: Lexicon, k: int
) -> list[list[str | None]]:
    """A row per checkpoint."""
    tokens = " ".join(map(lexicon.shown, word.tokens))
    title = tokens if len(word.tokens) == 1 else f"{word.word} (mean of {tokens})"
    cells = [[f"{lexicon.shown(index)} ({cosine:.2f})" for index, cosine in neighbors] for neighbors in found]
    return [[title, name, *row, *[None] * (k - len(row))] for name, row in zip(names, cells, strict=True)]


def _values(
    word: Word, found: Sequence[Neighbors], names: Sequence[str], paths: Sequence[str], lexicon: Lexicon
) -> dict[str, Any]:
    return {
        "word": word.word,
        "tokens": [lexicon.describe(index) for index in word.tokens],
        "checkpoints": [
            {
                "name": name,
                "path": path,
                "neighbors": [{"cosine": cosine, **lexicon.describe(index)} for index, cosine in neighbors],
            }
            for name, path, neighbors in zip(names, paths, found, strict=True)
        ],
    }


def _signature(embeddings: Sequence[Embeddings], bpe: str, grouping: str) -> str:
    """Every choice that moves a number, and what the mark says."""
    return "|".join(
        [
            f"matrix:{','.join(dict.fromkeys(one.matrix for one in embeddings))}",
            f"bpe:{bpe}",
            "word:mean-of-tokens",
            "cosine",
            "neighbors:all-but-own,special-and-filling-tokens",
            f"groups:{GROUPINGS[grouping]}",
            f"{MARK}:rare",
            f"version:{__version__}",
        ]
    )
