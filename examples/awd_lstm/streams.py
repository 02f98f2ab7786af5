"""A text as streams side by side, for models that carry their state from one batch to the next."""

from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset


class StreamDataset(FairseqDataset):
    """A text cut into streams of equal length, which the rows of a batch read from left to right.

    Row r of each batch goes on where row r of the batch before has ended. The items are pieces of
    streams, and item `batch * streams + r` is what batch number `batch` reads of stream r. The
    tokens that are left over when the text is divided, fewer than there are streams, are not read.

    Args:
        dataset: fairseq's `TokenBlockDataset` of the text, whose lines `dataset.dataset` are read:
            N tokens, the targets. Each is predicted from those before it.
        first: the token before the text: end of sentence.
        length: T, tokens per piece.
        seed: of random lengths. None: all pieces but the last are of length T. With a seed, each
            epoch draws its own, the same for all streams: of each piece by a normal distribution
            around T, or around T/2 for one in twenty, with a standard deviation of 5, and at least
            5 (Merity et al. 2018, Sec. 4.1).
    """

    def __init__(self, dataset: Any, first: int, length: int, seed: int | None = None) -> None:
        lines = dataset.dataset
        self.dataset, self.first, self.length, self.seed, self.epoch = (
            dataset,
            first,
            length,
            seed,
            1,
        )
        self.tokens = torch.cat([lines[number] for number in range(len(lines))]).long()  # N
        self.arrange(1)

    def arrange(self, streams: int, rows: range | None = None) -> None:
        """Divides the text into streams, at most N; `rows` are those in the batches of this worker
        (None: all)."""
        self.streams, self.rows = streams, rows or range(streams)
        self.set_epoch(self.epoch)

    def set_epoch(self, epoch: int) -> None:
        self.epoch, stream = epoch, len(self.tokens) // self.streams
        if self.seed is None:
            lengths = np.full(-(-stream // self.length), self.length)
        else:
            generator = np.random.default_rng((self.seed, epoch))
            number = stream // 5 + 1  # enough of the shortest
            means = np.where(generator.random(number) < 0.95, self.length, self.length / 2)
            lengths = np.maximum(5, generator.normal(means, 5).astype(int))
        ends = np.minimum(lengths.cumsum(), stream)
        ends = ends[: int((ends < stream).sum()) + 1]
        self.bounds = np.concatenate([[0], ends])

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return self.seed is None

    @property
    def sizes(self) -> np.ndarray:
        return np.repeat(np.diff(self.bounds), self.streams)

    def __len__(self) -> int:
        return (len(self.bounds) - 1) * self.streams

    def __getitem__(self, index: int) -> dict[str, Any]:
        batch, stream = divmod(int(index), self.streams)
        start, end = self.bounds[batch : batch + 2] + stream * (len(self.tokens) // self.streams)
        before = self.tokens[start - 1 : start] if start else self.tokens.new_tensor([self.first])
        target = self.tokens[start:end]
        return {
            "id": index,
            "source": torch.cat([before, target[:-1]]),
            "target": target,
            "continues": batch > 0,
        }

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """A batch. `continues`: does the text of each row go on from that of the batch before?"""
        source = torch.stack([sample["source"] for sample in samples])
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": source.numel(),
            "net_input": {
                "src_tokens": source,
                "src_lengths": torch.full((len(samples),), source.size(1)),
                "continues": samples[0]["continues"],
            },
            "target": torch.stack([sample["target"] for sample in samples]),
        }

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index])

    size = num_tokens

    def ordered_indices(self) -> np.ndarray:
        return np.arange(len(self))

    def batch_by_size(self, indices: Any, **_: Any) -> list[list[int]]:
        """For each batch the items of this worker's rows; no option of fairseq's changes them."""
        return [
            [batch * self.streams + row for row in self.rows]
            for batch in range(len(self.bounds) - 1)
        ]
