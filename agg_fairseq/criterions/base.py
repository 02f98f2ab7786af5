"""The base of every criterion here: likelihood through the gated operation, and what all of them log.

A method is what it adds to likelihood. Everything that any of them may add is a method of `LikelihoodCriterion` to
override, and meets in its `forward`, in this one place:

    criterion              gates       position_weight  unlikelihood     regularizer   beyond the loss
    mle
    agg                    g1, g2                       --ul-alpha       --cosreg-gamma
    agps                   f1, f2                       --ul-alpha       --cosreg-gamma
    freeze_rare            0 or 1                                                      rows put back after each step
    cosreg                                                               --cosreg-gamma
    unlikelihood                                        --ul-alpha       --cosreg-gamma
    unlikelihood_sequence                               --ul-alpha       --cosreg-gamma  updates on continuations
    face                               1 − f / max f
    f2_softmax                                                                         of another output layer

The gates act on the gradient of the likelihood and of the unlikelihood, which belong to positions. The regulariser has
none, and is not gated. In validation there are neither gates nor weights: both are ways to train, not what is measured.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor, nn

from ..errors import UserError, fail
from ..functional import CrossEntropyOutput, Gates, Unlikelihood, gated_cross_entropy
from ..metrics import isotropy, mean_cosine
from ..workers import close_process_group_at_exit
from .output_layer import features_of, output_layer
from .resume import check_resume, listen_to_restoring
from .sharding import check_ddp_backend
from .task_hooks import listen
from .whole_checkpoints import write_checkpoints_whole

Measure = tuple[Any, Any]
"""The sum of something, and the number of what it is summed over."""


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
    save_dir: str = II("checkpoint.save_dir")
    no_save: bool = II("checkpoint.no_save")
    restore_file: str = II("checkpoint.restore_file")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")
    continue_once: Optional[str] = II("checkpoint.continue_once")  # noqa: UP045 — fairseq reads the annotation
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")  # noqa: UP045
    reset_optimizer: bool = II("checkpoint.reset_optimizer")
    reset_dataloader: bool = II("checkpoint.reset_dataloader")
    update_ordered_indices_seed: bool = II("dataset.update_ordered_indices_seed")
    ddp_backend: str = II("distributed_training.ddp_backend")


class LikelihoodCriterion(FairseqCriterion):
    """Softmax likelihood, and the places where a method adds to it.

    Args:
        cfg: the options; fairseq merges them into a DictConfig.
        task: the task that trains this criterion.

    Raises:
        ValueError: an option is out of its range. fairseq's command lines turn it into one line and status 2.
    """

    name: ClassVar[str]
    averages: ClassVar[dict[str, int]] = {"isotropy": 4, "mean_cosine": 4}
    """What is logged beside loss, nll_loss and ppl, with its decimals."""
    predicts: ClassVar[bool] = False
    """Does `observe` need the arg-max predictions?"""

    def __init__(self, cfg: LikelihoodCriterionConfig, task: Any) -> None:
        super().__init__(task)
        if not 0 <= cfg.label_smoothing < 1:
            raise ValueError(f"--label-smoothing: expected a value in [0, 1), got {cfg.label_smoothing}")
        if cfg.embedding_stats_interval < 0:
            raise ValueError(
                "--embedding-stats-interval: expected a number of updates or 0 (only at validation), "
                f"got {cfg.embedding_stats_interval}"
            )
        check_ddp_backend(cfg.ddp_backend)
        self.cfg = cfg
        self.vocabulary = len(task.target_dictionary)
        self.train_iterator: Any = None
        self.is_dummy = False  # is this micro-batch one that a worker repeats because it has run out of data?
        self._due = False  # log the embedding's statistics with this micro-batch?
        self._attempt_begins = True
        self._update_num: int | None = None
        self._validation_statistics: dict[str, Measure] | None = None
        listen(task, self, cfg.train_subset, seed_has_epoch=cfg.update_ordered_indices_seed)
        listen_to_restoring()

    @classmethod
    def build_criterion(cls, cfg: LikelihoodCriterionConfig, task: Any) -> "LikelihoodCriterion":
        """What fairseq calls: the criterion, or one line and exit status 2."""
        try:
            return cls(cfg, task)
        except (ValueError, UserError) as error:
            fail(f"--criterion {cls.name}: {error}")

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a micro-batch in nats, its denominator, and what is logged.

        Args:
            model: a fairseq model with a decoder that yields features.
            sample: a batch of the task; `target` (B, T).
            reduce: sum over positions; without it the loss is per position and carries no gradient.

        Returns:
            loss, sample_size (tokens, or sentences with --sentence-avg), logging output of plain scalars.
        """
        weight, bias = output_layer(model, self.vocabulary, self.name)
        target = sample["target"]
        gates = self.gates(target) if self.training else None  # first: a worker may find no memory in what follows
        net_output = features_of(model, sample["net_input"], weight.size(1))
        output = gated_cross_entropy(
            net_output[0],
            weight,
            target,
            bias=bias,
            gates=gates,
            position_weight=self.position_weight(target) if self.training else None,
            unlikelihood=self.unlikelihood(target),
            label_smoothing=self.cfg.label_smoothing,
            ignore_index=self.padding_idx,
            predict=self.predicts and self.training,
        )
        if self.training:
            self.observe(weight, target, output)
        return self.result(weight, target, output, tokens=sample["ntokens"], reduce=reduce)

    def gates(self, target: Tensor) -> Gates | None:
        """The gates of this training micro-batch; None is plain likelihood. Called once per micro-batch."""
        return None

    def position_weight(self, target: Tensor) -> Tensor | None:
        """What the likelihood of each position of a training micro-batch counts, like `target`; None is 1."""
        return None

    def unlikelihood(self, target: Tensor) -> Unlikelihood | None:
        """The penalty on tokens that should not follow; None is none."""
        return None

    def regularizer(self, weight: Tensor) -> Tensor | None:
        """A term of W (V, D) alone, counted once per update whatever the batch; None is none."""
        return None

    def observe(self, weight: nn.Parameter, target: Tensor, output: CrossEntropyOutput) -> None:
        """Sees every training micro-batch after its forward pass, dummy ones (`is_dummy`) too."""

    def measures(self, target: Tensor, output: CrossEntropyOutput, regularizer: Tensor | None) -> dict[str, Measure]:
        """What the method logs with each micro-batch, as sum and number; its names stand in `averages`."""
        return {}

    def result(
        self,
        weight: Tensor,
        target: Tensor,
        output: CrossEntropyOutput,
        *,
        tokens: int,
        likelihood: bool = True,
        reduce: bool = True,
        measures: dict[str, Measure] | None = None,
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """What `forward` returns, from the output of the operation: adds the regulariser, and the log.

        Args:
            weight: (V, D) W.
            target: (B, T) y.
            output: of `gated_cross_entropy`.
            tokens: of the batch, without padding.
            likelihood: do these positions count in `nll_loss` and `ppl`? Not if the model has made the targets up.
            reduce: as `forward`.
            measures: what to log beside `self.measures`.
        """
        sample_size = len(target) if self.cfg.sentence_avg else tokens
        loss, regularizer = output.loss if reduce else output.terms, self.regularizer(weight)
        if regularizer is not None and reduce:
            loss = loss + sample_size * regularizer
        known = self.measures(target, output, regularizer) | (measures or {}) | self._embedding_statistics(weight)
        logging_output = {
            "loss": loss.detach().sum(),
            "nll_loss": output.nll.sum() * likelihood,
            "nll_tokens": tokens * likelihood,
            "ntokens": tokens,
            "nsentences": len(target),
            "sample_size": sample_size,
        }
        return loss, sample_size, logging_output | self.logged(known)

    def logged(self, known: dict[str, Measure]) -> dict[str, Any]:
        """Sum and number of each average, always all of them: fairseq adds the logs of workers up by key."""
        logged = {}
        for name in self.averages:
            logged[name], logged[f"{name}_number"] = known.get(name, (0.0, 0))
        return logged

    def _embedding_statistics(self, weight: Tensor) -> dict[str, Measure]:
        if self.training:
            due, self._due = self._due, False
            return _embedding_statistics(weight) if due else {}
        if self._validation_statistics is None:
            self._validation_statistics = _embedding_statistics(weight)
        return self._validation_statistics

    def on_train_iterator(self, iterator: Any) -> None:
        """See `TaskListener`."""
        if self.train_iterator is None:
            close_process_group_at_exit()
        self.train_iterator = iterator

    def before_restoring(self) -> None:
        """fairseq-train is about to look for a checkpoint to go on from: refuses one that it cannot go on from."""
        try:
            check_resume(self.cfg, type(self).__name__)
        except ValueError as error:
            fail(f"--criterion {self.name}: {error}")
        if not self.cfg.no_save:  # the folder may be that of another training
            write_checkpoints_whole(self.cfg.save_dir)

    def train(self, mode: bool = True) -> "LikelihoodCriterion":
        """The trainer calls this once at the start of each attempt at an update, and `eval()` in validation."""
        self._attempt_begins = mode
        return super().train(mode)

    def on_train_step(self, update_num: int, is_dummy: bool) -> None:
        """See `TaskListener`."""
        self.is_dummy = is_dummy
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

    def on_weights_changed(self, optimizer: Any) -> None:
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

        sample_size, tokens = total("sample_size"), total("nll_tokens")
        metrics.log_scalar("loss", total("loss") / sample_size / math.log(2), sample_size, round=3)
        if tokens > 0:
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


def special_tokens(dictionary: Any) -> Tensor:
    """(V,) bool, the tokens that no method treats as rare: padding, begin and end of sentence, the unknown word."""
    is_special = torch.zeros(len(dictionary), dtype=torch.bool)
    is_special[[dictionary.pad(), dictionary.bos(), dictionary.eos(), dictionary.unk()]] = True
    return is_special


def _embedding_statistics(weight: Tensor) -> dict[str, Measure]:
    if not weight.isfinite().all():
        return {"isotropy": (math.nan, 1), "mean_cosine": (math.nan, 1)}
    return {"isotropy": (isotropy(weight), 1), "mean_cosine": (mean_cosine(weight), 1)}
