"""Logits of every token at each position of a binarized split, by a fairseq model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from torch import Tensor
from tqdm import tqdm

from ..checkpoints import Checkpoint
from ..errors import UserError
from ..metrics.next_token import chunk_rows
from .features import features_if_plain
from .models.from_checkpoint import build_model


def score_split(
    checkpoint: Checkpoint,
    data: str | Path,
    split: str,
    *,
    length: int | None,
    context: int = 0,
    max_tokens: int | None = None,
    device: torch.device,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Gives logits (n, V), or log P, and the targets (n,) of a chunk of positions at a time: those
    that fairseq-eval-lm counts, or the target side of the pairs of a translation model.

    `length` is the number of tokens per block of a language model, of which the first `context` are
    not scored; None: pairs. A batch has `max_tokens`; None: 2048, or a longer block.
    UserError if the model has too few positions.
    """
    model, task = build_model(checkpoint, data, {"sample_break_mode": "none"})
    model.to(device)
    positions = model.max_positions()
    if length is None:
        task.load_dataset(split)
        dataset = task.dataset(split)
        _, longer = dataset.filter_indices_by_size(dataset.ordered_indices(), positions)
        if len(longer):
            raise UserError(
                f"{split}: found {len(longer)} of {len(dataset)} pairs of more than "
                f"{' or '.join(map(str, positions))} tokens, the positions of the model; expected "
                "a split without them"
            )
        batches = task.get_batch_iterator(
            dataset, max_positions=positions, max_tokens=max_tokens or 2048
        ).next_epoch_itr(shuffle=False)
    else:
        if not context < length <= positions:
            raise UserError(
                f"--tokens-per-sample: found {length}, {context} of them context, and {positions} "
                "positions of the model; expected more than context, at most the positions"
            )
        task.args.tokens_per_sample = length - context
        task.load_dataset(split)
        batches = task.eval_lm_dataloader(
            dataset=task.dataset(split),
            num_workers=0,
            context_window=context,
            max_positions=positions,
            max_tokens=max_tokens or max(2048, length),
        )
    for sample in tqdm(batches, f"scoring {split}", leave=False, disable=None):
        if "net_input" in sample:
            if device.type != "cpu":
                sample = utils.move_to_cuda(sample, device=device)
            yield from _score(model, task, sample)


@torch.no_grad()
def _score(model: Any, task: Any, sample: dict[str, Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """The positions of a batch, of which a chunk has logits at a time where the model returns what
    its output layer gives."""
    target, net_input = sample["target"], sample["net_input"]  # target: B x T
    is_scored = target != task.target_dictionary.pad()
    if getattr(getattr(task, "args", None), "add_bos_token", False):
        is_scored &= target != task.target_dictionary.bos()
    target = target[is_scored]  # N
    rows = chunk_rows(len(task.target_dictionary))

    def normalized(logits: Tensor) -> Tensor:  # or features, of an adaptive softmax
        return model.get_normalized_probs((logits, {}), log_probs=True)

    layer = getattr(model.decoder, "output_layer", None)
    features = features_if_plain(model, net_input, lambda few: normalized(layer(few)))
    if features is None:
        log_probs = model.get_normalized_probs(model(**net_input), log_probs=True)
        yield from zip(log_probs[is_scored].split(rows), target.split(rows), strict=True)
        return
    is_softmax = None
    for chunk, targets in zip(features[is_scored].split(rows), target.split(rows), strict=True):
        logits = layer(chunk[None])  # 1 x n x V
        if is_softmax is None:  # tried out at a position
            log_probs = logits[:, :1].log_softmax(-1, dtype=torch.float32)
            is_softmax = torch.equal(normalized(logits[:, :1]), log_probs)
        yield (logits if is_softmax else normalized(logits))[0], targets
