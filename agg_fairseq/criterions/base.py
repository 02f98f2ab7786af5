"""The base of every criterion here: likelihood through the gated operation, the terms, and what all of them log.

A criterion is likelihood with something added. The table says which method of `LikelihoodCriterion` each overrides:

    criterion              gates     position_weight   counts        beyond the loss
    mle
    agg                    g1, g2                      targets
    agps                   f1, f2
    freeze_rare            0 or 1                                    rows put back after each step
    face                             1 − f / max f     predictions
    cosreg                                                           --cosreg-gamma is 1 by default
    unlikelihood                                                     --ul-alpha is 1 by default
    unlikelihood_sequence                                            some updates on the model's own continuations
    f2_softmax                                                       likelihood of another output layer

The gates act on the gradients that belong to positions: those of the likelihood and of the terms of positions. A term
of the embedding has no positions, and is not gated. In validation there are neither gates nor position weights: both
are ways to train, not what is measured.

Every criterion takes every term of `terms.py`, each with its own weight; 0 leaves it out, also of the log. And every
criterion takes `--center-output`: after each step the mean row is subtracted from all rows of W.
"""

import argparse
import functools
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

import torch
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor, nn

from ..data.binarized import task_name
from ..errors import UserError, fail
from ..fairseq_glue.atomic_saving import write_checkpoints_whole
from ..fairseq_glue.distributed import check_ddp_backend, close_process_group_at_exit
from ..fairseq_glue.hooks import TaskListener, listen
from ..fairseq_glue.output_layer import (
    OutputLayer,
    averages,
    features_of,
    float32_copies,
    output_layer,
    trained_embeddings,
    unwrapped,
)
from ..fairseq_glue.registries import register_once
from ..fairseq_glue.resume import check_resume, listen_to_restoring
from ..functional import Gates, center_rows_, gated_cross_entropy
from ..functional.agg import check_open_interval
from ..metrics import Geometry, geometry
from .terms import EMBEDDING_TERMS, POSITION_TERMS, EmbeddingTerm, PositionTerm

Measure = tuple[Any, Any]
"""A sum, and the number of what it is summed over; their quotient is logged."""


@dataclass
class CriterionConfig(FairseqDataclass):
    """Options of every criterion of this package."""

    label_smoothing: float = field(
        default=0.0, metadata={"help": "epsilon of label smoothing in [0, 1), as in label_smoothed_cross_entropy"}
    )
    cosreg_gamma: float = field(
        default=0.0,
        metadata={"help": "weight of the mean cosine between output embeddings (Gao et al. 2019: 1.0); 0: none"},
    )
    mu_loss: float = field(
        default=0.0,
        metadata={
            "help": "weight of the squared length of the mean output embedding (Stollenwerk et al. 2026); 0: none"
        },
    )
    dispersion_gamma: float = field(
        default=0.0,
        metadata={
            "help": "weight of the sliced angular dispersion of the output embeddings (Tokarchuk et al. 2025); 0: none"
        },
    )
    isoscore_gamma: float = field(
        default=0.0,
        metadata={
            "help": "weight of 1 - IsoScore of the output embeddings, against uneven use of the dimensions; 0: none"
        },
    )
    center_output: bool = field(
        default=False,
        metadata={
            "help": "after each step of the optimizer, subtract the mean output embedding from all output embeddings "
            "(Stollenwerk et al. 2026)"
        },
    )
    embedding_stats_interval: int = field(
        default=0,
        metadata={
            "help": "interval, in updates, of logging the statistics of the output embedding: isotropy I(W), "
            "mean_cosine S(W), both of W minus its mean row (…_centered), mean_share and isoscore; "
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


@dataclass
class LikelihoodCriterionConfig(CriterionConfig):
    """Options of every criterion that works on one softmax over all tokens."""

    ul_alpha: float = field(
        default=0.0,
        metadata={
            "help": "weight of the unlikelihood of tokens seen earlier in the same sequence "
            "(Welleck et al. 2020: 1.0); 0: none"
        },
    )
    z_loss: float = field(
        default=0.0,
        metadata={"help": "weight of the mean squared logsumexp of the logits (Chowdhery et al. 2022: 1e-4); 0: none"},
    )
    adv_epsilon: float = field(
        default=0.0,
        metadata={
            "help": "adversarial training: lower the logit of the target by this share of the product of the norms of "
            "its embedding and of the features (Wang et al. 2019: 0.005, in their fine-tuning 0.028); 0: none"
        },
    )


class LikelihoodCriterion(TaskListener, FairseqCriterion):
    """Softmax likelihood with the terms, and the methods in which a criterion adds to it.

    Args:
        cfg: the options; fairseq merges them into a DictConfig.
        task: the task that trains this criterion.

    Raises:
        ValueError: an option is out of its range. fairseq's command lines turn it into one line and status 2.
    """

    name: ClassVar[str]
    position_terms: ClassVar[tuple[PositionTerm, ...]] = POSITION_TERMS
    embedding_terms: ClassVar[tuple[EmbeddingTerm, ...]] = EMBEDDING_TERMS
    averages: ClassVar[dict[str, int]] = dict.fromkeys((*Geometry._fields, "activation_penalty"), 4)
    """What is logged beside loss, nll_loss, ppl and the terms, with its decimals."""
    counts_tokens: ClassVar[bool] = False
    """Does the criterion keep a number for each token? Then all target languages must have the same dictionary."""
    predicts: ClassVar[bool] = False
    """Does `count_predictions` need the arg-max predictions?"""

    def __init__(self, cfg: CriterionConfig, task: Any) -> None:
        super().__init__(task)
        if not 0 <= cfg.label_smoothing < 1:
            raise ValueError(f"--label-smoothing: expected a value in [0, 1), got {cfg.label_smoothing}")
        if cfg.embedding_stats_interval < 0:
            raise ValueError(
                "--embedding-stats-interval: expected a number of updates or 0 (only at validation), "
                f"got {cfg.embedding_stats_interval}"
            )
        for term in (*self.position_terms, *self.embedding_terms):
            weight = getattr(cfg, term.option)
            if not 0 <= weight < math.inf:
                raise ValueError(f"--{term.option.replace('_', '-')}: expected a weight of at least 0, got {weight}")
        check_ddp_backend(cfg.ddp_backend)
        self.cfg = cfg
        if task_name(task) == "semisupervised_translation":
            raise ValueError(
                "found the task semisupervised_translation, whose train_step ends in a KeyError in fairseq 0.12 with "
                "every criterion; expected another one, such as multilingual_translation"
            )
        self.changes_rows = cfg.center_output  # are rows of W changed beside the optimizer?
        self.vocabulary = len(task.target_dictionary)
        languages = sorted({pair.split("-")[1] for pair in getattr(task, "lang_pairs", None) or ()})
        # translation_multi_simple_epoch may have one dictionary for all target languages, by --target-dict.
        manager = getattr(task, "data_manager", None)
        of_language = getattr(manager, "get_target_dictionary", None) or (lambda language: task.dicts[language])
        dictionaries = [task.target_dictionary, *map(of_language, languages)]
        self.vocabularies = {len(dictionary) for dictionary in dictionaries}
        if self.counts_tokens and any(dictionary != dictionaries[0] for dictionary in dictionaries):
            raise ValueError(
                f"found different dictionaries of the target languages {', '.join(languages)} in the task "
                f"{task_name(task)}; expected one, since tokens are counted; add --joined-dictionary to "
                "fairseq-preprocess"
            )
        self.train_iterator: Any = None
        self.is_dummy = False  # is this micro-batch one that a worker repeats because it has run out of data?
        self._update = 0  # number of the update under way
        self._statistics_are_due = False  # log the statistics of each embedding in this update?
        # Those of the present weights that are computed, in training and in validation, by their W, of which some
        # models have several (0: any W that is made anew in each batch). The log has their mean.
        self._statistics: dict[tuple[bool, int], dict[str, Measure]] = {}
        listen(task, self, cfg.train_subset, seed_has_epoch=cfg.update_ordered_indices_seed)
        listen_to_restoring()

    @classmethod
    def build_criterion(cls, cfg: CriterionConfig, task: Any) -> "LikelihoodCriterion":
        """Called by fairseq: the criterion, or one line and exit status 2."""
        try:
            return cls(cfg, task)
        except (ValueError, UserError) as error:
            fail(f"--criterion {cls.name}: {error}")

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a micro-batch in nats, its denominator, and what is logged.

        Args:
            model: a fairseq model whose logits are the output of one linear layer.
            sample: a batch of the task; `target` (B, T).
            reduce: sum over positions; without it the loss is per position and carries no gradient.

        Returns:
            loss, sample_size (tokens, or sentences with --sentence-avg), logging output of plain scalars.
        """
        target = sample["target"]  # B x T
        layer = self.output_layer(model, sample["net_input"])
        gates = position_weight = None
        if self.training:
            # Before the forward pass: a worker that runs out of memory there has already joined the reductions of
            # `gates`, so that the workers stay in step.
            if not self.is_dummy:
                self.count_targets(target)
            gates, position_weight = self.gates(target), self.position_weight(target)
        features, weight, bias = features_of(model, sample["net_input"], layer)  # B x T x D; V x D; V, or None
        output = gated_cross_entropy(
            features,
            weight,
            target,
            bias=bias,
            gates=gates,
            position_weight=position_weight,
            label_smoothing=self.cfg.label_smoothing,
            ignore_index=self.padding_idx,
            predict=self.predicts and self.training,
            **{
                term.argument: term.value(getattr(self.cfg, term.option), target, self.padding_idx)
                for term in self._position_terms()
            },
        )
        if self.predicts and self.training and not self.is_dummy:
            self.count_predictions(output.prediction, target)
        measures = self.measures(target, output)
        return self.result(
            weight,
            target,
            output,
            tokens=sample["ntokens"],
            measures=measures,
            penalty=penalty_of(model),
            reduce=reduce,
        )

    def compute_loss(self, model: Any, net_output: Any, sample: dict[str, Any], reduce: bool = True) -> None:
        """Called by tasks that run the model themselves (translation_moe): they have logits, and no features."""
        fail(
            f"--criterion {self.name}: found the task {task_name(self.task)}, which passes logits to the criterion; "
            "expected a task that passes the model and the batch; fairseq's cross_entropy trains this one"
        )

    def count_targets(self, target: Tensor) -> None:
        """Called with the targets (B, T) of each training micro-batch that is not a dummy one, before `gates`."""

    def gates(self, target: Tensor) -> Gates | None:
        """The gates of a training micro-batch with targets (B, T); None is plain likelihood."""
        return None

    def position_weight(self, target: Tensor) -> Tensor | None:
        """Weights (B, T) of the likelihood at each position of a training micro-batch; None is 1."""
        return None

    def count_predictions(self, prediction: Tensor, target: Tensor) -> None:
        """Called, if `predicts`, with the arg-max tokens (B, T) of each training micro-batch that is no dummy one."""

    def measures(self, target: Tensor, output: Any) -> dict[str, Measure]:
        """What is logged of a micro-batch beside loss, likelihood and the terms of the embedding.

        Args:
            target: (B, T).
            output: of the operation.

        Returns:
            A measure by each of its names, which are among `averages` and the names of `position_terms`.
        """
        terms = self._position_terms()
        tokens = (target != self.padding_idx).sum() if terms else 0
        return {term.logged: (getattr(output, term.argument).sum() / term.unit, tokens) for term in terms}

    def _position_terms(self) -> list[PositionTerm]:
        """The terms of positions that are formed now."""
        terms = [term for term in self.position_terms if getattr(self.cfg, term.option)]
        return [term for term in terms if self.training or term.in_validation]

    def result(
        self,
        weight: Tensor,
        target: Tensor,
        output: Any,
        *,
        tokens: int,
        measures: dict[str, Measure],
        penalty: Tensor | None = None,
        likelihood: bool = True,
        reduce: bool = True,
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """What `forward` returns, from the output of the operation: adds the terms of the embedding, and the log.

        Args:
            weight: (V, D) W.
            target: (B, T) y.
            output: of the operation.
            tokens: of the batch, without padding.
            measures: what to log of this micro-batch.
            penalty: what the model adds to the loss in training, a scalar in nats per token, as AWD-LSTM does.
            likelihood: do these positions count in `nll_loss` and `ppl`? Not if the model has made the targets up.
            reduce: as in `forward`.
        """
        sample_size = len(target) if self.cfg.sentence_avg else tokens
        loss, measures = output.loss if reduce else output.terms, dict(measures)
        for term in self.embedding_terms:
            if gamma := getattr(self.cfg, term.option):
                value = term.value(weight, self.padding_idx, self._update if self.training else 0)
                measures[term.logged] = (value.detach(), 1)
                if reduce:  # fairseq divides by sample_size, so that the term counts once per update
                    loss = loss + sample_size * (gamma * value)
        if penalty is not None:
            measures["activation_penalty"] = (sample_size * penalty.detach(), sample_size)
            if reduce:
                loss = loss + sample_size * penalty
        measures |= self._embedding_statistics(weight)
        logging_output = {
            "loss": loss.detach().sum(),
            "nll_loss": output.nll.sum() * likelihood,
            "nll_tokens": tokens * likelihood,
            "ntokens": tokens,
            "nsentences": len(target),
            "sample_size": sample_size,
        }
        for name in self._digits():  # always all of them: fairseq adds the logs of workers up by key
            logging_output[name], logging_output[f"{name}_number"] = measures.get(name, (0.0, 0))
        return loss, sample_size, logging_output

    def _embedding_statistics(self, weight: Tensor) -> dict[str, Measure]:
        """The measures of `Geometry` that are defined, if they are due; all are NaN if W is not finite.

        They are due once per update at the interval in training, and in validation, where they are computed once.
        """
        key = (self.training, id(weight) if isinstance(weight, nn.Parameter) else 0)
        if self.training and (not self._statistics_are_due or key in self._statistics):
            return {}
        if key in self._statistics:
            return self._statistics[key]
        if weight.isfinite().all():
            found = {name: (value, 1) for name, value in geometry(weight)._asdict().items() if not math.isnan(value)}
        else:
            found = dict.fromkeys(Geometry._fields, (math.nan, 1))
        self._statistics[key] = found
        return found

    def output_layer(self, model: Any, net_input: dict[str, Any]) -> OutputLayer:
        """The output layer of a model; refuses one that weight normalization makes, if its rows are to be changed."""
        layer = output_layer(model, net_input, self.vocabularies, self.name)
        if self.changes_rows and not isinstance(layer.weight, nn.Parameter):
            fail(
                f"--criterion {self.name}: found an output embedding with weight normalization, whose rows are no "
                "parameters; expected no --center-output and no --freeze-parts all for this model"
            )
        return layer

    def output_embeddings(self, model: Any) -> list[nn.Parameter]:
        """Each W (V, D) that is trained, of a model, wrapped or not; several where it consists of models."""
        return trained_embeddings(model)

    # Called by the hooks on the task (`TaskListener` lists all of them), and by the one on fairseq's load_checkpoint.

    def on_train_iterator(self, iterator: Any) -> None:
        """Keeps the iterator over the training data."""
        if self.train_iterator is None:
            close_process_group_at_exit()
        self.train_iterator = iterator

    def begin_update(self, update_num: int) -> None:
        """An attempt at an update begins; a skipped update is attempted again under the same number."""
        interval = self.cfg.embedding_stats_interval
        self._statistics_are_due = interval > 0 and update_num % interval == 0
        self._update = update_num
        self._statistics = {}

    def on_micro_batch(self, is_dummy: bool) -> None:
        """Notes whether the next micro-batch is a dummy one."""
        self.is_dummy = is_dummy

    def on_weights_changed(self, optimizer: Any, model: Any) -> None:
        """Subtracts the mean row of W, also in the float32 copies and the average that an optimizer keeps of it."""
        if self.cfg.center_output:
            weights = self.output_embeddings(model)
            if not weights:  # other workers may have found them, and would center theirs
                fail("--center-output: found no memory for the first batch of this worker; lower --max-tokens")
            for weight in weights:
                center_rows_(weight, float32_copies(optimizer, weight))
                for average in averages(optimizer, weight):
                    center_rows_(average)

    def before_restoring(self) -> None:
        """fairseq-train is about to look for a checkpoint to go on from: refuses one that it cannot go on from."""
        try:
            check_resume(self.cfg, type(self).__name__)
        except ValueError as error:
            fail(f"--criterion {self.name}: {error}")
        if not self.cfg.no_save:  # the folder may be that of another training
            write_checkpoints_whole(self.cfg.save_dir)

    @classmethod
    def _digits(cls) -> dict[str, int]:
        """Decimals of everything that may be logged as an average, by name."""
        return cls.averages | {term.logged: term.digits for term in (*cls.position_terms, *cls.embedding_terms)}

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs `loss`, `nll_loss` (bits per token), `ppl` and the averages, over micro-batches and workers."""

        def total(key: str) -> Any:
            return sum(log.get(key, 0) for log in logging_outputs)

        sample_size, tokens = total("sample_size"), total("nll_tokens")
        metrics.log_scalar("loss", total("loss") / sample_size / math.log(2), sample_size, round=3)
        if tokens > 0:
            metrics.log_scalar("nll_loss", total("nll_loss") / tokens / math.log(2), tokens, round=3)
        for name, digits in cls._digits().items():
            number = total(f"{name}_number")
            if number > 0:
                metrics.log_scalar(name, total(name) / number, number, round=digits)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        # fairseq sets the meters of an interval to zero after each line of the log, and keeps them. Of a meter that was
        # not updated since, it would log null, and a perplexity of 0: leave such a key out. The meters are numbered
        # anew, as they are after a resume.
        for aggregator in metrics.get_active_aggregators():
            averages = [name for name in ("nll_loss", *cls._digits()) if name in aggregator]
            empty = {name for name in averages if not aggregator[name].count}
            if "nll_loss" in empty or "nll_loss" not in aggregator:
                empty.add("ppl")
            for name in empty:
                del aggregator[name]
            kept = [(priority, name) for priority, _, name in aggregator.priorities if name not in empty]
            aggregator.priorities = [(priority, number, name) for number, (priority, name) in enumerate(kept)]

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: every logged value is a sum."""
        return True


register = functools.partial(register_once, CRITERION_REGISTRY, register_criterion)
"""The decorator of each criterion: `@register(name, dataclass=…)`."""


def penalty_of(model: Any) -> Tensor | None:
    """What an AWD-LSTM has added to its loss in the forward pass, a scalar in nats per token; None of other models."""
    return getattr(getattr(unwrapped(model), "decoder", None), "penalty", None)


def make_exclusive(parser: argparse.ArgumentParser, *options: str) -> None:
    """Makes a command line refuse two options together, of which `check_thresholds` sees only the values.

    A config cannot tell a value that is given from the default, if the two are equal.
    """
    given: dict[str, str] = {}
    for action in parser._actions:
        if action.dest not in options:
            continue

        @functools.wraps(action.type)  # argparse's errors name the type
        def convert(text: str, *, action: argparse.Action = action, convert: Any = action.type) -> float:
            given[action.option_strings[0]] = text
            if len(given) > 1:
                fail(f"found both {' and '.join(map(' '.join, sorted(given.items())))}; drop one of them")
            return convert(text)

        action.type = convert


def check_thresholds(cfg: CriterionConfig, option: str, default: float, *, replaced_by: str) -> None:
    """Checks two options in (0, 1) that choose the rare tokens, of which only one may be given.

    Args:
        cfg: the options.
        option: name of the one that has a default.
        default: its value where it is not given.
        replaced_by: name of the other one, None where it is not given.

    Raises:
        ValueError: a value is out of its range, or both are given.
    """
    flags = {name: f"--{name.replace('_', '-')}" for name in (option, replaced_by)}
    value, other = getattr(cfg, option), getattr(cfg, replaced_by)
    check_open_interval(flags[option], value)
    if other is None:
        return
    check_open_interval(flags[replaced_by], other)
    if value != default:
        raise ValueError(
            f"found both {flags[option]} {value} and {flags[replaced_by]} {other}, which replaces it; drop one of them"
        )


def special_tokens(dictionary: Any) -> Tensor:
    """(V,) bool, the tokens that no method treats as rare: padding, begin and end of sentence, the unknown word."""
    is_special = torch.zeros(len(dictionary), dtype=torch.bool)
    is_special[[dictionary.pad(), dictionary.bos(), dictionary.eos(), dictionary.unk()]] = True
    return is_special
