"""A partition of the vocabulary into classes, and the positions of the tokens of each class in the
dictionary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

RUN = 1024  # this many consecutive tokens or more are addressed as a slice, which copies nothing

Block = slice | Tensor


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """Each token's class, for any order of the dictionary."""

    of_token: Tensor  # (V,) int64 in [0, C), the class of each token
    position: Tensor  # (V,) int64, the position of each token in its class
    sizes: tuple[int, ...]  # C numbers, the tokens of each class
    # For each class, its tokens in the order of their positions, in pieces: a slice of the
    # dictionary, or indices (n,). A dictionary sorted by frequency gives slices, but for a few
    # special tokens.
    blocks: tuple[tuple[Block, ...], ...]

    @classmethod
    def of(cls, class_of_token: Tensor) -> TokenClasses:
        """The partition that a map (V,) int64 describes; ValueError if a class is negative or
        empty."""
        classes = class_of_token.cpu().numpy()
        sizes = np.bincount(classes)
        if sizes.min() == 0:
            raise ValueError(
                f"TokenClasses: expected a token in each class, got none in class "
                f"{int(sizes.argmin())}"
            )
        device = class_of_token.device
        members = np.split(np.argsort(classes, kind="stable"), np.cumsum(sizes)[:-1])
        position, blocks = torch.empty(len(classes), dtype=torch.int64), []
        for tokens in members:  # ascending
            # Long runs of consecutive tokens become slices; all others follow them in one piece of
            # indices.
            runs = np.split(tokens, np.nonzero(np.diff(tokens) != 1)[0] + 1)
            is_long = [len(run) >= RUN or len(runs) == 1 for run in runs]
            pieces = [
                slice(int(run[0]), int(run[-1]) + 1)
                for run, long in zip(runs, is_long, strict=True)
                if long
            ]
            rest = [run for run, long in zip(runs, is_long, strict=True) if not long]
            if rest:
                pieces.append(torch.from_numpy(np.concatenate(rest)).to(device))
            blocks.append(tuple(pieces))
            position[torch.cat([indices(piece, "cpu") for piece in pieces])] = torch.arange(
                len(tokens)
            )
        return cls(class_of_token, position.to(device), tuple(map(int, sizes)), tuple(blocks))

    @property
    def number(self) -> int:
        """C, the number of classes."""
        return len(self.sizes)

    @property
    def vocabulary(self) -> int:
        """V, the number of tokens."""
        return len(self.of_token)

    def rows(self, weight: Tensor, number: int) -> Tensor:
        """The rows of a (V, D) tensor that belong to a class, in the order of their positions: (n,
        D).

        A view where the class is one slice of the dictionary, else a copy.
        """
        pieces = [weight[block] for block in self.blocks[number]]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def indices(block: Block, device: torch.device | str) -> Tensor:
    """The tokens of a block as indices (n,) on the device."""
    return (
        torch.arange(block.start, block.stop, device=device)
        if isinstance(block, slice)
        else block.to(device)
    )


def check_classes(weight: Tensor, class_weight: Tensor, classes: TokenClasses) -> None:
    """Raises ValueError unless W is (V, D) and U (C, D), for V tokens in C classes."""
    expected = (
        (classes.vocabulary, class_weight.size(-1)),
        (classes.number, class_weight.size(-1)),
    )
    if (tuple(weight.shape), tuple(class_weight.shape)) != expected:
        raise ValueError(
            f"factorized softmax: expected weight of shape {expected[0]} and class_weight of shape "
            f"{expected[1]}, got "
            f"{tuple(weight.shape)} and {tuple(class_weight.shape)}"
        )
