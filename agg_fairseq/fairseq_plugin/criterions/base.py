"""The base of every criterion here.

A criterion is a rule for gates (`gating`) and a loss (`functional.TrainingLoss`), both plain
PyTorch, and tells them what fairseq knows. What each adds to likelihood:

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

The gates act on the gradients that belong to positions: those of the likelihood, of `--ul-alpha`
and `--adv-epsilon`. In validation there are neither gates nor position weights.
"""

import logging
import math
from collections import defaultdict
from dataclasses import dataclass, make_dataclass
from typing import Any, ClassVar, List, NoReturn
from weakref import WeakKeyDictionary

from fairseq import utils
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.logging.meters import AverageMeter
from fairseq.tasks import TASK_REGISTRY
from omegaconf import II
from torch import Tensor, nn
from torch.nn import functional

from ...data.binarized import excluded_tokens, training_counts
from ...errors import UserError, fail, flag
from ...f2 import FactorizedSoftmax
from ...functional import TERMS, Average, Gates, LossOutput, TrainingLoss
from ...functional.gated_linear import changes_when_read
from ...gating import Gating
from ...metrics import Geometry, geometry
from .. import option
from ..atomic_saving import write_checkpoints_atomically
from ..features import is_plain
from ..hooks import install_hooks
from ..output_layer import (
    Head,
    NoOutputLayer,
    gated_log_probs,
    loss_of_features,
    output_layer,
    passes_features,
    unwrapped,
)

logger = logging.getLogger(__name__)

DRIFT = "lets the weights of the workers drift apart"
REFUSED_BACKENDS = {
    "fully_sharded": "leaves each worker a part of the output embedding",
    "slowmo": DRIFT,
}
"""Values of --ddp-backend under which the workers do not all hold the same whole W."""


@dataclass
class CommonConfig(FairseqDataclass):
    """Options of every criterion of this package, but for the weights of terms."""

    label_smoothing: float = option(
        0.0, "epsilon of label smoothing in [0, 1), as in label_smoothed_cross_entropy"
    )
    embedding_stats_interval: int = option(
        0,
        "interval, in updates, of logging the statistics of the output embedding: isotropy I(W), "
        "mean_cosine S(W), both of W minus its mean row (…_centered), mean_share and isoscore; 0: "
        "only at validation",
    )
    sentence_avg: bool = II("optimization.sentence_avg")
    train_subset: str = II("dataset.train_subset")
    update_ordered_indices_seed: bool = II("dataset.update_ordered_indices_seed")
    ddp_backend: str = II("distributed_training.ddp_backend")
    use_bmuf: bool = II("optimization.use_bmuf")
    update_freq: List[int] = II("optimization.update_freq")
    skip_remainder_batch: bool = II("optimization.skip_remainder_batch")


def with_terms(name: str, base: type, *, of_weight: bool) -> type:
    """A dataclass with an option for each of the terms of W, or for each of the others."""
    terms = [term for term in TERMS if (term.of_weight is not None) == of_weight]
    fields = [(term.option, float, option(0.0, term.help)) for term in terms]
    return make_dataclass(name, fields, bases=(base,), namespace={"__module__": __name__})


# of a criterion that forms no logits of all tokens, and of the others; a weight of 0 leaves a term out
CriterionConfig = with_terms("CriterionConfig", CommonConfig, of_weight=True)
GatedCriterionConfig = with_terms("GatedCriterionConfig", CriterionConfig, of_weight=False)


class GatedCriterion(FairseqCriterion):
    """Tells a rule for gates and a loss what fairseq knows, and logs what they return."""

    logged: ClassVar[dict[str, int]] = {
        **dict.fromkeys(Geometry._fields, 4),
        **{term.logged: term.decimals for term in TERMS},
        "rare_tokens": 1,
        "rare_share": 4,
    }
    """Names and decimals of what is logged beside loss, nll_loss and ppl."""
    counts_tokens: ClassVar[bool] = False
    """Does it keep a number for each token? Then all target languages need the same dictionary."""
    on_weights_changed: Any = None
    """A method that is called with optimizer and model after the optimizer's step."""

    def __init__(self, cfg: CriterionConfig, task: Any) -> None:
        super().__init__(task)
        if (reason := REFUSED_BACKENDS.get(str(cfg.ddp_backend))) is not None:
            raise ValueError(
                f"found --ddp-backend {cfg.ddp_backend}, which {reason}; expected pytorch_ddp or "
                "legacy_ddp"
            )
        if cfg.use_bmuf:
            raise ValueError(f"found --use-bmuf, which {DRIFT}; expected to train without it")
        if self.counts_tokens:
            check_one_dictionary(task)
        self.cfg = cfg
        vocabulary = len(task.target_dictionary)
        self.gating = self.make_gating(
            vocabulary=vocabulary,
            excluded=excluded_tokens(task.target_dictionary),
            ignore_index=self.padding_idx,
        )
        self.training_loss = TrainingLoss(
            # fairseq gives ε/(V − 1) to each token but the target, torch ε/V to all
            label_smoothing=cfg.label_smoothing * vocabulary / max(vocabulary - 1, 1),
            ignore_index=self.padding_idx,
            padding_row=self.padding_idx,
            **{term.option: getattr(cfg, term.option, 0.0) for term in TERMS},
        )
        self.open_update: int | None = None  # whose tokens are counted
        self.attempts = 0  # at updates so far
        self.train_iterator: Any = None
        self.max_positions: Any = None  # of the items of the training split
        # Has this worker run out of data, so that it repeats its first micro-batch?
        self.is_dummy = False
        self.statistics = EmbeddingStatistics()
        self._heads: WeakKeyDictionary[Any, Head] = WeakKeyDictionary()  # by model
        install_hooks(task, self)

    def make_gating(self, **options: Any) -> Gating:
        """The rule for gates, from the options of `Gating`; a criterion overrides this."""
        return Gating(**options)

    @classmethod
    def build_criterion(cls, cfg: CriterionConfig, task: Any) -> "GatedCriterion":
        """The criterion, or one line and exit status 2 for an option out of its range."""
        try:
            return cls(cfg, task)
        except (ValueError, UserError) as error:
            fail(f"--criterion {cfg._name}: {error}")

    # The loss of a micro-batch.

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a micro-batch in nats, its denominator, and the log.

        Without `reduce`, the loss is per position and carries no gradient.
        """
        gates = self.gating(sample["target"], self.is_dummy)
        output, weight = self.loss_of_model(model, sample, gates=gates)
        return self.result(weight, output, sample, gates=gates, reduce=reduce)

    def loss_of_model(
        self,
        model: Any,
        sample: dict[str, Any],
        *,
        gates: Gates | None = None,
        **options: Any,
    ) -> tuple[LossOutput, Tensor]:
        """Runs a model on a batch: its loss, with these options of `TrainingLoss`, and W.

        One line and status 2 for a model that has no single output matrix.
        """
        head = self._heads.get(model)
        if is_first := head is None:
            head = self._heads[model] = self.find_head(model, sample["net_input"])
        net_input, target, loss = sample["net_input"], sample["target"], self.training_loss
        if gates is not None and not any(one.requires_grad for one in head.layer.parameters()):
            self.refuse(model, "whose output embedding does not train")
        options["denominator"] = self.sample_size(sample)
        try:
            if head.passes_features:
                weight, bias = head.layer.weight, getattr(head.layer, "bias", None)
                return loss_of_features(
                    model,
                    net_input,
                    head,
                    lambda features: loss(features, weight, target, bias, gates=gates, **options),
                ), weight
            for term in TERMS:
                if loss.weights[term.option] and not (term.of_weight or term.takes_log_probs):
                    raise NoOutputLayer(
                        f"which computes its logits in its own way, and {flag(term.option)} "
                        f"{loss.weights[term.option]}; expected 0 for such a model"
                    )
            log_probs = gated_log_probs(model, net_input, head.layer, target, gates)
            if is_first and log_probs[:, :1].logsumexp(-1).abs().max() > 0.01:
                raise NoOutputLayer("whose get_normalized_probs gives other sums than 1")
            weight = head.layer.weight  # weight normalization makes it in each pass
            return loss.from_logits(log_probs, weight, target, **options), weight
        except NoOutputLayer as problem:
            self.refuse(model, problem)

    def find_head(self, model: Any, net_input: dict[str, Any]) -> Head:
        """The output layer of a model, and whether it ends in it, which is compared for this input;
        one line and status 2 if it has no single output matrix."""
        layer = output_layer(model)
        if isinstance(layer, FactorizedSoftmax):
            self.refuse(
                model,
                "with the factorized output layer, which has no softmax over all tokens to work on; "
                "expected --criterion f2_softmax",
            )
        if layer is None:
            self.refuse(model, "which has no single output matrix")
        if changes_when_read(layer):
            self.refuse(
                model,
                "whose output embedding changes each time that it is read, as by the spectral_norm "
                "of torch's parametrizations",
            )

        def log_probs(features: Tensor) -> Tensor:
            logits = functional.linear(features, layer.weight)
            if (bias := getattr(layer, "bias", None)) is not None:
                logits = logits + bias
            return utils.log_softmax(logits, dim=-1)

        model = unwrapped(model)
        is_own = passes_features(model) and is_plain(model, net_input, log_probs)
        return Head(model.decoder, layer, is_own)

    def refuse(self, model: Any, problem: object) -> NoReturn:
        """Ends the training in one line."""
        fail(
            f"--criterion {self.cfg._name}: found {type(unwrapped(model)).__name__}, {problem}; "
            "fairseq's own criterions train this model"
        )

    def sample_size(self, sample: dict[str, Any]) -> int:
        """The number by which fairseq divides the loss of a batch."""
        return len(sample["target"]) if self.cfg.sentence_avg else sample["ntokens"]

    def result(
        self,
        weight: Tensor,
        output: LossOutput,
        sample: dict[str, Any],
        *,
        gates: Gates | None = None,
        in_nll_loss: bool = True,
        reduce: bool = True,
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The result of `forward`, from the loss of a batch.

        Targets that a model made up count neither in `nll_loss` nor in `ppl`: not `in_nll_loss`.
        """
        logged, interval = output.logged, self.cfg.embedding_stats_interval
        if not self.training or (interval > 0 and (self.open_update or 0) % interval == 0):
            logged |= self.statistics.of(weight, self.training, self.attempts)
        if gates is not None:
            rare = gates.rare.sum()
            logged |= {"rare_tokens": (rare, 1), "rare_share": (rare, len(gates.rare))}
        tokens, size = sample["ntokens"], self.sample_size(sample)
        logging_output = {
            "loss": (output.loss if reduce else output.losses.sum()).detach(),
            "nll_loss": output.nll.sum() if in_nll_loss else output.nll.new_zeros(()),
            "nll_tokens": tokens * in_nll_loss,
            "ntokens": tokens,
            "nsentences": len(sample["target"]),
            "sample_size": size,
        }
        for name in self.logged:  # all: fairseq adds the logs of workers up by key
            logging_output[name], logging_output[f"{name}_number"] = logged.get(name, (0.0, 0))
        return output.loss if reduce else output.losses, size, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs `loss`, `nll_loss` (bits per token), `ppl` and the averages of all workers."""

        totals: dict[str, Any] = defaultdict(int)
        for log in logging_outputs:
            for key, value in log.items():
                totals[key] += value
        for name, number in (("loss", "sample_size"), ("nll_loss", "nll_tokens")):
            if totals[number] > 0:
                mean = totals[name] / totals[number] / math.log(2)
                metrics.log_scalar(name, mean, totals[number], round=3)
        for name, digits in cls.logged.items():
            if (number := totals[f"{name}_number"]) > 0:
                metrics.log_scalar(name, totals[name] / number, number, round=digits)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        # fairseq sets meters to zero after each line of the log, and keeps them, also those of a
        # criterion that trained before a resume: it would log null for one that was not updated,
        # and a perplexity of 0 for an empty `nll_loss`. So these are forgotten; those that fairseq
        # logs later in the update come back. The others are numbered as after a resume.
        for aggregator in metrics.get_active_aggregators():
            for name, meter in list(aggregator.items()):
                if isinstance(meter, AverageMeter) and meter.val is None:
                    del aggregator[name]
            if "nll_loss" not in aggregator:
                del aggregator["ppl"]
            remaining = [one for one in aggregator.priorities if one[2] in aggregator]
            aggregator.priorities = [
                (priority, number, name) for number, (priority, _, name) in enumerate(remaining)
            ]

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True

    # Called by `install_hooks`, in this order.

    def on_train_iterator(self, iterator: Any, epoch: int) -> None:
        """Keeps the `EpochBatchIterator` over the training split, and tells the rule of an epoch
        that begins; the first one calls `on_training_data`."""
        is_first, self.train_iterator = self.train_iterator is None, iterator
        if self.gating.counter is not None:
            self.gating.start_epoch(epoch, self.updates_of_epoch(epoch))
        if is_first:
            write_checkpoints_atomically()
            self.on_training_data(epoch)

    def updates_of_epoch(self, epoch: int) -> int:
        """The updates of an epoch, at least 1."""
        frequencies = self.cfg.update_freq
        frequency = frequencies[min(max(1, epoch), len(frequencies)) - 1]
        batches = len(self.train_iterator)
        if self.cfg.skip_remainder_batch:  # fairseq leaves out the last batch, full or not
            return max(1, (batches - 1) // frequency)
        return max(1, math.ceil(batches / frequency))

    def on_training_data(self, epoch: int) -> None:
        """Called once, when the training split has been loaded, before this epoch."""

    def count_targets(self, epoch: int | None = None) -> Tensor:
        """Counts each token as a target in the training, or in one of its epochs: (V,) int64."""
        return training_counts(self.task, self.cfg.train_subset, self.max_positions, epoch)

    def start_update(self, update_num: int) -> None:
        """An attempt at an update begins. The same number as before says that the previous attempt
        failed (its gradient overflowed, or memory ran out), any other number that it succeeded. It
        is lower in a training that goes on with --reset-optimizer."""
        self.attempts += 1
        if self.open_update is None and self.gating.counter is not None:
            logger.info(f"{self.cfg._name}: the counts start empty at update {update_num}")
        if self.open_update is None or update_num == self.open_update:
            self.gating.roll_back_update()
        else:
            self.gating.commit_update()
        self.open_update = update_num

    def checkpoint_state(self) -> dict[str, Any]:
        """Tensors and plain values to be saved; the same on every worker."""
        return {"gating": dict(self.gating.state_dict()), "open_update": self.open_update}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        """Restores what `checkpoint_state` returned; a state with other entries, as that of most
        other criterions, is left out, and the log says so."""
        saved = state.get("gating", {})
        expected, counter = self.gating.state_dict(), self.gating.counter
        if saved.keys() != expected.keys():
            logger.warning(
                f"{self.cfg._name}: left out the state of the checkpoint, "
                f"{', '.join(saved) or 'which is empty'}; expected that of --criterion "
                f"{self.cfg._name}, {', '.join(expected) or 'which is empty'}"
            )
            return
        self.gating.load_state_dict(saved)
        self.open_update = state.get("open_update")
        self.gating.is_summed = self.open_update is not None  # the update that was saved is whole
        if counter is not None and self.open_update is not None:
            window_text = "" if counter.window is None else f" of {counter.updates} updates"
            logger.info(f"{self.cfg._name}: restored the counts{window_text}")


class EmbeddingStatistics:
    """`Geometry` of the output embedding, measured once per update or validation."""

    def __init__(self) -> None:
        # Of the present weights, by training or validation, and by W, of which some models have
        # several (0: any W that is made anew in each batch). The log has their mean.
        self._measures: dict[tuple[bool, int], dict[str, Average]] = {}
        self._attempt = 0  # at an update, of which they are

    def of(self, weight: Tensor, training: bool, attempt: int) -> dict[str, Average]:
        """The measures of W (V, D) that are defined, NaN if W is not finite. In training, the first
        micro-batch of an attempt has them, and the others have none."""
        if attempt != self._attempt:
            self._attempt, self._measures = attempt, {}
        key = (training, id(weight) if isinstance(weight, nn.Parameter) else 0)
        if training and key in self._measures:
            return {}
        if key not in self._measures:
            measures = dict.fromkeys(Geometry._fields, (math.nan, 1))
            if weight.isfinite().all():
                values = geometry(weight)._asdict()
                measures = {
                    name: (value, 1) for name, value in values.items() if not math.isnan(value)
                }
            self._measures[key] = measures
        return self._measures[key]


def check_one_dictionary(task: Any) -> None:
    """Raises ValueError if the target languages have different dictionaries."""
    # of translation_multi_simple_epoch
    manager = getattr(task, "data_manager", None)
    get_dictionary = getattr(manager, "get_target_dictionary", None) or (
        lambda language: task.dicts[language]
    )
    languages = {pair.split("-")[1] for pair in getattr(task, "lang_pairs", None) or ()}
    if any(get_dictionary(language) != task.target_dictionary for language in languages):
        names = [name for name, kind in TASK_REGISTRY.items() if kind is type(task)]
        raise ValueError(
            "found different dictionaries of the target languages in the task "
            f"{names[0] if names else type(task).__name__}; expected one, since tokens are counted; "
            "add --joined-dictionary to fairseq-preprocess"
        )
