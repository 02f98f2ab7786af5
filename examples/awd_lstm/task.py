"""`--task language_modeling_streams`: language models that carry their state from one batch to the
next."""

import logging
from dataclasses import dataclass
from typing import Any

from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from omegaconf import II
from torch import Tensor

from agg_fairseq.errors import fail
from agg_fairseq.fairseq_plugin.output_layer import unwrapped

from .streams import StreamDataset

logger = logging.getLogger(__name__)

NAME = "language_modeling_streams"
PENALTY = "activation_penalty"


@dataclass
class LanguageModelingStreamsConfig(LanguageModelingConfig):
    """Options of `--task language_modeling_streams`: those of `language_modeling`."""

    train_subset: str = II("dataset.train_subset")
    distributed_world_size: int = II("distributed_training.distributed_world_size")


@register_task(NAME, dataclass=LanguageModelingStreamsConfig)
class LanguageModelingStreamsTask(LanguageModelingTask):
    """`language_modeling` on batches that continue each other (truncated backpropagation through
    time).

    A split is cut into as many streams as a batch has rows, times the number of workers, and each
    row reads one of them from left to right. There are --batch-size rows, or --max-tokens divided
    by --tokens-per-sample. In training, the lengths of batches are random around
    --tokens-per-sample, and the learning rate of an update is multiplied by its mean length over
    --tokens-per-sample (Merity et al. 2018, Sec. 4.1); the loss has the `penalty` of the decoder.
    In evaluation, the whole text is one stream, unless the command sets a batch size.

    A checkpoint has the state at the end of the last batch, so that a training on one worker
    resumes bit for bit. Of several workers fairseq saves what the first one has. So they resume
    with states of zeros, and the log says so, as does a training with another number of streams.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if str(self.args.sample_break_mode) != "none":
            fail(
                f"--task {NAME}: found --sample-break-mode {self.args.sample_break_mode}; "
                "expected none"
            )
        self._lengths: list[int] = []  # of the micro-batches of the update under way
        self._decoder: Any = None  # of the model that is trained
        self._saved: dict[str, Any] | None = None  # of a checkpoint, until the first batch after it

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> StreamDataset:
        """Loads a split, with random lengths if it is the training split."""
        # its errors, and its choice of a shard
        super().load_dataset(split, epoch, combine, **kwargs)
        seed, length = (
            self.args.seed if split == self.args.train_subset else None,
            self.args.tokens_per_sample,
        )
        self.datasets[split] = StreamDataset(
            self.datasets[split].dataset, self.dictionary.eos(), length, seed
        )
        return self.datasets[split]

    def get_batch_iterator(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """The batches in the order of the text, for the rows of this worker."""
        rows, workers, worker = (
            kwargs.get("max_sentences"),
            kwargs.pop("num_shards", 1),
            kwargs.pop("shard_id", 0),
        )
        if not isinstance(dataset, StreamDataset):
            return super().get_batch_iterator(
                dataset, *args, num_shards=workers, shard_id=worker, **kwargs
            )
        rows = rows or max(1, kwargs["max_tokens"] // self.args.tokens_per_sample)
        if rows * workers * 2 > len(dataset.tokens):
            fail(
                f"--batch-size: found {rows * workers} streams of {len(dataset.tokens)} tokens; "
                "lower it"
            )
        if (dataset.streams, dataset.rows) != (
            rows * workers,
            range(worker * rows, (worker + 1) * rows),
        ):
            dataset.arrange(rows * workers, range(worker * rows, (worker + 1) * rows))
            self.dataset_to_epoch_iter.pop(dataset, None)
        iterator = super().get_batch_iterator(dataset, *args, **{**kwargs, "max_positions": None})
        iterator.disable_shuffling = True
        return iterator

    def eval_lm_dataloader(
        self, dataset: Any, *args: Any, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        """The whole text as one stream."""
        if kwargs.get("context_window"):
            fail(
                f"--task {NAME}: found --context-window; expected none, since a state carries all "
                "of the text before"
            )
        return super().eval_lm_dataloader(dataset, *args, batch_size=batch_size or 1, **kwargs)

    def train_step(self, sample: Any, model: Any, criterion: Any, *args: Any, **kwargs: Any) -> Any:
        """A micro-batch; the first after a resume begins with the saved state."""
        decoder = self._decoder = unwrapped(model).decoder
        saved, self._saved = self._saved, None
        if saved is not None and sample["net_input"]["continues"]:
            workers, rows, parameter = (
                self.args.distributed_world_size,
                len(sample["target"]),
                next(model.parameters()),
            )
            if workers == 1 and saved["streams"] == rows:
                state = tuple((h.to(parameter), c.to(parameter)) for h, c in saved["carried"])
                decoder.carried = {**decoder.carried, True: state}
            else:
                logger.warning(
                    f"{NAME}: the checkpoint has states of {saved['streams']} streams, and this "
                    "training has "
                    f"{workers * rows} on {workers} workers: the states of all streams begin with "
                    "zeros"
                )
        # a new update, or a new attempt after an overflow
        if next(model.parameters()).grad is None:
            self._lengths = []
        self._lengths.append(sample["target"].size(1))

        def with_penalty(model: Any, sample: Any) -> tuple[Tensor, int, dict[str, Any]]:
            loss, sample_size, logging_output = criterion(model, sample)
            penalty, decoder.penalty = decoder.penalty, None
            if penalty is not None:
                loss = loss + sample_size * penalty
                logging_output["loss"] = logging_output["loss"] + sample_size * penalty.detach()
                logging_output[PENALTY] = sample_size * penalty.detach()
            return loss, sample_size, logging_output

        return super().train_step(sample, model, with_penalty, *args, **kwargs)

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: Any) -> None:
        """Logs the penalty too."""
        super().reduce_metrics(logging_outputs, criterion)
        if any(PENALTY in output for output in logging_outputs):
            size = sum(output["sample_size"] for output in logging_outputs)
            metrics.log_scalar(
                PENALTY, sum(output[PENALTY] for output in logging_outputs) / size, size, round=4
            )

    def optimizer_step(self, optimizer: Any, model: Any, update_num: int) -> None:
        """An update with a learning rate in proportion to the length of its batches."""
        rate, lengths = optimizer.get_lr(), self._lengths
        optimizer.set_lr(rate * sum(lengths) / len(lengths) / self.args.tokens_per_sample)
        super().optimizer_step(optimizer, model, update_num)
        optimizer.set_lr(rate)

    def get_checkpoint_dict(self) -> dict[str, Any]:
        """The state at the end of the last batch, for `extra_state` of the checkpoint, and the
        number of streams."""
        state = self._decoder.carried.get(True) if self._decoder is not None else None
        carried = [tuple(part.cpu() for part in layer) for layer in state or ()]
        return {
            type(self).__name__: {
                "carried": carried,
                "streams": self.datasets[self.args.train_subset].streams,
            }
        }

    def set_checkpoint_dict(self, saved: dict[str, Any]) -> None:
        """Keeps the state of a checkpoint for the first batch."""
        self._saved = saved if saved.get("carried") else None
