"""A partition of the vocabulary into classes, and targets sorted by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..functional.host_copy import HostCopy

TILE_TOKENS = 256  # the most tokens of one class that are reduced at a time
MOST_RUNS = 4
"""Runs of consecutive tokens of a class; special ones interrupt that of a sorted dictionary."""


class SortedTargets(NamedTuple):
    """Positions sorted by the ranks of their targets, the ignored ones last."""

    positions: Tensor  # (N,) int64
    ranks: Tensor  # (N,) int64, those of the targets by these positions; V where one is ignored
    starts: HostCopy  # (C + 1,) int64, where each class begins, and the ignored ones


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """Each token's class, for any order of the dictionary."""

    class_ids: Tensor  # (V,) int64 in [0, C), the class of each token
    order: Tensor  # (V,) int64, the tokens sorted by class, then by index
    rank: Tensor  # (V,) int64, the position of each token in `order`
    edges: Tensor  # (C + 1,) int32, `starts` as a tensor
    sizes: Tensor  # (C,) int64, the number of tokens of each class
    starts: tuple[int, ...]  # C + 1 numbers: class c has the ranks from starts[c] to starts[c + 1]
    parts: tuple[tuple[slice | Tensor, ...], ...]  # of each class: a few runs of tokens, or indices
    # How a row of V values is reduced to C: by the columns (tiles, tile) of each tile of one class,
    # then by the tiles (C, most) of each class; with masks of what only fills the tables.
    tables: tuple[tuple[Tensor, Tensor], ...]

    @classmethod
    def of(cls, class_of_token: Tensor) -> TokenClasses:
        """The partition that a map (V,) int64 describes; ValueError if a class is negative or
        empty."""
        classes = class_of_token.cpu().numpy()
        sizes = np.bincount(classes)
        if sizes.min() == 0:
            raise ValueError(
                "TokenClasses: expected a token in each class, got none in class "
                f"{int(sizes.argmin())}"
            )
        starts = np.concatenate([[0], np.cumsum(sizes)])
        order = np.argsort(classes, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))

        # or the mean size of a class, if that is less
        tile = min(TILE_TOKENS, -(-len(order) // len(sizes)))
        device, parts, columns = class_of_token.device, [], []
        for members in np.split(order, starts[1:-1]):
            runs = np.split(members, np.flatnonzero(np.diff(members) != 1) + 1)
            pieces: list[slice | Tensor] = [slice(int(run[0]), int(run[-1]) + 1) for run in runs]
            if len(runs) > MOST_RUNS:
                pieces = [torch.from_numpy(members).to(device)]
            parts.append(tuple(pieces))
            columns += np.split(members, range(tile, len(members), tile))
        tiles = np.split(np.arange(len(columns)), np.cumsum(-(-sizes // tile))[:-1])
        return cls(
            class_of_token.long(),
            torch.from_numpy(order).to(device),
            torch.from_numpy(rank).to(device),
            torch.from_numpy(starts).int().to(device),
            torch.from_numpy(sizes).to(device),
            tuple(map(int, starts)),
            tuple(parts),
            (_table(columns, device), _table(tiles, device)),
        )

    @property
    def number(self) -> int:
        """C, the number of classes."""
        return len(self.parts)

    @property
    def vocabulary(self) -> int:
        """V, the number of tokens."""
        return len(self.class_ids)

    def split(self, values: Tensor, dimension: int) -> list[Tensor]:
        """The values of each class along a dimension of V, without a copy where they are
        consecutive. Its backward pass is one over all values."""
        slices = [part for parts in self.parts for part in parts if isinstance(part, slice)]
        runs = sorted((part.start, part.stop - part.start) for part in slices)
        if sum(size for _, size in runs) < self.vocabulary:
            sizes = np.diff(self.starts).tolist()
            return list(values.index_select(dimension, self.order).split(sizes, dimension))
        pieces = values.split([size for _, size in runs], dimension)
        by_start = {start: piece for (start, _), piece in zip(runs, pieces, strict=True)}
        return [
            joined([by_start[part.start] for part in parts if isinstance(part, slice)], dimension)
            for parts in self.parts
        ]

    def sort(self, target: Tensor, ignore_index: int) -> SortedTargets:
        """Sorts positions by the ranks of their targets (...), without waiting for a GPU: called
        before the model runs, the numbers have arrived when the loss needs them."""
        token, ignored = target.reshape(-1), target.reshape(-1) == ignore_index
        token = token.masked_fill(ignored, 0)
        if not target.is_cuda and ((token < 0) | (token >= self.vocabulary)).any():
            raise RuntimeError(
                f"expected targets in [0, {self.vocabulary}) or {ignore_index} (ignored)"
            )
        # without a target: the rank V; a GPU sorts 32 bits in half the time
        ranks = self.rank.index_select(0, token).masked_fill_(ignored, self.vocabulary).int()
        ranks, positions = ranks.sort(stable=True)
        starts = torch.searchsorted(ranks, self.edges)
        return SortedTargets(positions, ranks.long(), HostCopy(starts))

    def spread(self, values: Tensor) -> Tensor:
        """Values of classes (N, C) at each of their tokens: (N, V)."""
        parts = [(number, part) for number, parts in enumerate(self.parts) for part in parts]
        if values.is_cuda or not all(isinstance(part, slice) for _, part in parts):
            return values.index_select(1, self.class_ids)
        spread = values.new_empty(len(values), self.vocabulary)
        for number, part in parts:
            spread[:, part] = values[:, number : number + 1]
        return spread

    def reduce(self, values: Tensor, reduction: Callable[..., Tensor], nothing: float) -> Tensor:
        """A `reduction`, such as `torch.sum`, of (N, V) over the tokens of each class: (N, C);
        `nothing` is the value that does not change it."""
        if not values.is_cuda:
            return torch.stack([reduction(part, 1) for part in self.split(values, 1)], 1)
        for columns, is_empty in self.tables:  # a few launches, whatever the number of classes
            parts = values.index_select(1, columns.view(-1)).view(-1, *columns.shape)
            values = reduction(parts.masked_fill_(is_empty, nothing), 2)
        return values


def joined(parts: list[Tensor], dimension: int = 0) -> Tensor:
    """`torch.cat`, without a copy of a single one."""
    return torch.cat(parts, dimension) if parts[1:] else parts[0]


def _table(rows: list[np.ndarray], device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of numbers as one matrix, filled with zeros; and a mask of these."""
    table = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    is_empty = np.ones(table.shape, dtype=bool)
    for number, row in enumerate(rows):
        table[number, : len(row)], is_empty[number, : len(row)] = row, False
    return torch.from_numpy(table).to(device), torch.from_numpy(is_empty).to(device)


def check_classes(weight: Tensor, class_weight: Tensor, classes: TokenClasses) -> None:
    """Raises ValueError unless W is (V, D) and U (C, D), for V tokens in C classes."""
    dimension = class_weight.size(-1)
    expected = ((classes.vocabulary, dimension), (classes.number, dimension))
    if (tuple(weight.shape), tuple(class_weight.shape)) != expected:
        raise ValueError(
            f"factorized softmax: expected weight of shape {expected[0]} and class_weight of shape "
            f"{expected[1]}, got {tuple(weight.shape)} and {tuple(class_weight.shape)}"
        )
