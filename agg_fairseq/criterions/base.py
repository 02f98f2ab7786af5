"""The base of every criterion here: likelihood through the gated operation, and what all of them log."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairseq import utils
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor

from ..errors import fail
from ..functional import CrossEntropyOutput, Gates, gated_cross_entropy
from ..metrics import isotropy, mean_cosine
from .output_layer import output_layer
from .task_hooks import listen


@dataclass
class LikelihoodCriterionConfig(FairseqDataclass):
    """Options of every criterion of this package."""

    label_smoothing: float = field(
        default=0.0, metadata={"help": "epsilon of label smoothing in [0, 1), as in label_smoothed_cross_entropy"}
    )
    embedding_stats_interval: int = field(
        default=0,
        metadata={
            "help": "log isotropy I(W) and mean_cosine S(W) of the output embedding every this many updates; "
            "0: only at validation, where they are always logged"
        },
    )
    sentence_avg: bool = II("optimization.sentence_avg")
    train_subset: str = II("dataset.train_subset")


class LikelihoodCriterion(FairseqCriterion):
    """Softmax likelihood whose gradient into the output embedding may be gated.

    A method overrides `gates` and, where it has a state, what `TaskListener` describes. In validation nothing is
    gated, since gates change gradients only.

    Args:
        cfg: the options; fairseq merges them into a DictConfig.
        task: the task that trains this criterion.

    Raises:
        ValueError: an option is out of its range. fairseq's command lines turn it into one line and status 2.
    """

    name: ClassVar[str]
    averages: ClassVar[dict[str, int]] = {"isotropy": 4, "mean_cosine": 4}
    """Logged averages that are no sums over tokens, with their decimals."""

    def __init__(self, cfg: LikelihoodCriterionConfig, task: Any) -> None:
        super().__init__(task)
        if not 0 <= cfg.label_smoothing < 1:
            raise ValueError(f"--label-smoothing: expected a value in [0, 1), got {cfg.label_smoothing}")
        if cfg.embedding_stats_interval < 0:
            raise ValueError(
                "--embedding-stats-interval: expected a number of updates or 0 (only at validation), "
                f"got {cfg.embedding_stats_interval}"
            )
        self.cfg = cfg
        self.vocabulary = len(task.target_dictionary)
        self.train_iterator: Any = None
        self._due = False  # log the embedding's statistics with this micro-batch?
        self._attempt_begins = True
        self._update_num: int | None = None
        self._validation_statistics: dict[str, float] | None = None
        listen(task, self, cfg.train_subset)

    @classmethod
    def build_criterion(cls, cfg: LikelihoodCriterionConfig, task: Any) -> "LikelihoodCriterion":
        """What fairseq calls: the criterion, or one line and exit status 2."""
        try:
            return cls(cfg, task)
        except ValueError as error:
            fail(f"--criterion {cls.name}: {error}")

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a micro-batch in nats, its denominator, and what is logged.

        Args:
            model: a fairseq model with a decoder that supports `features_only`.
            sample: a batch of the task; `target` (B, T).
            reduce: sum over positions; without it the loss is per position and carries no gradient.

        Returns:
            loss, sample_size (tokens, or sentences with --sentence-avg), logging output of plain scalars.
        """
        weight, bias = output_layer(model, self.vocabulary, self.name)
        net_output = model(**sample["net_input"], features_only=True)
        target = model.get_targets(sample, net_output)
        output = gated_cross_entropy(
            net_output[0],
            weight,
            target,
            bias=bias,
            gates=self.gates(target) if self.training else None,
            label_smoothing=self.cfg.label_smoothing,
            ignore_index=self.padding_idx,
        )
        logging_output = self._logging_output(sample, output) | self._averages(weight)
        return output.loss if reduce else output.smoothed, logging_output["sample_size"], logging_output

    def gates(self, target: Tensor) -> Gates | None:
        """The gates of this training micro-batch; None is plain likelihood. Called once per micro-batch."""
        return None

    def measures(self) -> dict[str, float]:
        """What the method logs with each training micro-batch; its names stand in `averages`."""
        return {}

    def _logging_output(self, sample: dict[str, Any], output: CrossEntropyOutput) -> dict[str, Any]:
        sentences = sample["target"].size(0)
        return {
            "loss": output.loss.detach(),
            "nll_loss": output.nll.sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sentences if self.cfg.sentence_avg else sample["ntokens"],
        }

    def _averages(self, weight: Tensor) -> dict[str, float]:
        """Sum and number of each average, always all of them: fairseq adds the logs of workers up by key."""
        known = (self.measures() if self.training else {}) | self._embedding_statistics(weight)
        logged = {}
        for name in self.averages:
            logged[name] = known.get(name, 0.0)
            logged[f"{name}_number"] = int(name in known)
        return logged

    def _embedding_statistics(self, weight: Tensor) -> dict[str, float]:
        if self.training:
            due, self._due = self._due, False
            return _embedding_statistics(weight) if due else {}
        if self._validation_statistics is None:
            self._validation_statistics = _embedding_statistics(weight)
        return self._validation_statistics

    def on_train_iterator(self, iterator: Any) -> None:
        """See `TaskListener`."""
        self.train_iterator = iterator

    def train(self, mode: bool = True) -> "LikelihoodCriterion":
        """The trainer calls this once at the start of each attempt at an update, and `eval()` in validation."""
        self._attempt_begins = mode
        return super().train(mode)

    def on_train_step(self, update_num: int, is_dummy: bool) -> None:
        """See `TaskListener`."""
        if self._attempt_begins or update_num != self._update_num:
            self._attempt_begins, self._update_num = False, update_num
            self.begin_update(update_num)

    def begin_update(self, update_num: int) -> None:
        """Called before the first micro-batch of each attempt at an update; a skipped one is attempted again."""
        interval = self.cfg.embedding_stats_interval
        self._due = interval > 0 and update_num % interval == 0
        self._validation_statistics = None

    def on_optimizer_step(self) -> None:
        """See `TaskListener`."""

    def checkpoint_state(self) -> dict[str, Any]:
        """See `TaskListener`: plain likelihood has no state."""
        return {}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """See `TaskListener`."""

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs `loss`, `nll_loss` (bits per token), `ppl` and the averages, over micro-batches and workers."""

        def total(key: str) -> Any:
            return sum(log.get(key, 0) for log in logging_outputs)

        sample_size, tokens = total("sample_size"), total("ntokens")
        metrics.log_scalar("loss", total("loss") / sample_size / math.log(2), sample_size, round=3)
        metrics.log_scalar("nll_loss", total("nll_loss") / tokens / math.log(2), tokens, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        for name, digits in cls.averages.items():
            number = total(f"{name}_number")
            if number > 0:
                metrics.log_scalar(name, total(name) / number, number, round=digits)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: every logged value is a sum."""
        return True


def _embedding_statistics(weight: Tensor) -> dict[str, float]:
    if not weight.isfinite().all():
        return {"isotropy": math.nan, "mean_cosine": math.nan}
    return {"isotropy": isotropy(weight), "mean_cosine": mean_cosine(weight)}
