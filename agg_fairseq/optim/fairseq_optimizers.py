"""The optimizers of this package for fairseq's `--optimizer`. Importing this module registers them."""

import logging
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, List, NoReturn, Optional

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from omegaconf import II
from torch import Tensor

from ..data.binarized import training_counts
from ..errors import fail, first_line
from ..fairseq_glue.registries import named, option
from ..fairseq_glue.trainer import build_optimizer  # noqa: F401 — calls `attach`
from .embedding_adam import EmbeddingAdam, appearance_rates

logger = logging.getLogger(__name__)

register = partial(named, register_optimizer)
"""The decorator of each optimizer: `@register(name, dataclass=…)`."""


def fail_memory_efficient(optimizer: FairseqOptimizer) -> NoReturn:
    """Refuses modes in which the optimizers of torch would have no float32 copies of the parameters."""
    fail(f"--optimizer {optimizer.name}: found --memory-efficient-fp16 or -bf16; expected --fp16, --bf16 or --amp")


class AdamOptimizer(FairseqAdam):
    """An optimizer with the options of fairseq's `adam`, as fairseq reads them."""

    name: str  # of --optimizer; `register` sets it
    optimizer_class: type[torch.optim.Optimizer]

    def __init__(self, cfg: Any, params: Any) -> None:
        FairseqOptimizer.__init__(self, cfg)  # without fairseq's own Adam
        try:
            self._optimizer = self.optimizer_class(params, **self.optimizer_config)
        except Exception as error:  # ValueError, or what Python raises for --adam-betas, which fairseq evaluates
            fail(f"--optimizer {self.name}: {first_line(error)}; expected options such as --adam-betas '(0.9, 0.98)'")


class AdamOfEmbedding(AdamOptimizer):
    """An `EmbeddingAdam` whose output embedding, tied or not, is in a group of its own.

    fairseq tells an optimizer nothing of the model, so that `attach` adds the group once the trainer has built it.
    """

    optimizer_class = EmbeddingAdam

    def group_options(self, trainer: Any) -> dict[str, Any]:
        """The entries of the group of the output embedding."""
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        """As of fairseq's; one line and status 2 for a state that is not of such an optimizer."""
        try:
            super().load_state_dict(state_dict, optimizer_overrides)
        except ValueError as error:
            fail(f"--optimizer {self.name}: {error}; resume with the options of that training, or --reset-optimizer")

    def attach(self, trainer: Any) -> None:
        """Gives the output embedding its group; one line and status 2 if there is no such matrix."""
        model, criterion = trainer.get_model(), trainer.get_criterion()
        decoder = getattr(model, "decoder", None)
        tied = decoder.embed_tokens if getattr(decoder, "share_input_output_embed", False) else None
        layer = getattr(decoder, "output_projection", getattr(decoder, "fc_out", tied))
        weight = getattr(layer, "weight", None)
        if weight is None or getattr(decoder, "adaptive_softmax", None) is not None:
            fail(
                f"--optimizer {self.name}: found {type(model).__name__} without a single output embedding; expected a "
                "decoder that ends in a linear layer over the target tokens (without --adaptive-softmax-cutoff)"
            )
        # fairseq's optimizers for half precision train float32 copies, in the order of the parameters.
        trained = [p for p in chain(model.parameters(), criterion.parameters()) if p.requires_grad]
        group = self._optimizer.param_groups[0]
        position = next((number for number, parameter in enumerate(trained) if parameter is weight), None)
        if position is None:
            logger.info(f"{self.name}: the output embedding is not trained")
            return
        own = {"params": [group["params"].pop(position)], **self.group_options(trainer)}
        self._optimizer.add_param_group({**group, **own})


@register("coupled_adam", dataclass=FairseqAdamConfig)
class FairseqCoupledAdam(AdamOfEmbedding):
    """fairseq's `adam`, with one second moment for all rows of the output embedding."""

    def group_options(self, trainer: Any) -> dict[str, Any]:
        return {"coupled": True}


@dataclass
class EmbeddingAdamConfig(FairseqAdamConfig):
    """Options of `--optimizer embedding_adam`."""

    embedding_beta2: Optional[float] = option(  # noqa: UP045 — fairseq reads the annotation
        None, "beta2 of the output embedding, in [0, 1); by default that of --adam-betas"
    )
    embedding_memory: ChoiceEnum(("updates", "appearances")) = option(  # type: ignore[valid-type]
        "updates",
        "what the memory 1 / (1 - beta2) of the output embedding counts: updates, as Adam does, or the appearances of "
        "each token as a target, at the rate of the training split",
    )
    train_subset: str = II("dataset.train_subset")
    update_freq: List[int] = II("optimization.update_freq")


@register("embedding_adam", dataclass=EmbeddingAdamConfig)
class FairseqEmbeddingAdam(AdamOfEmbedding):
    """fairseq's `adam`, with another second moment for the rows of the output embedding."""

    counts: Tensor | None = None  # of the training split, until the first step knows how many updates it has

    def group_options(self, trainer: Any) -> dict[str, Any]:
        if self.cfg.embedding_beta2 is not None and not 0 <= self.cfg.embedding_beta2 < 1:
            fail(f"--embedding-beta2: found {self.cfg.embedding_beta2}; expected a number in [0, 1)")
        rates = None
        if str(self.cfg.embedding_memory) == "appearances":
            self.task, self.counts = trainer.task, training_counts(trainer.task, self.cfg.train_subset)
            rates = torch.zeros(len(self.counts), dtype=torch.float64)
        return {"beta2": self.cfg.embedding_beta2, "rates": rates}

    def step(self, *arguments: Any, **options: Any) -> None:
        """The step of fairseq's `adam`. Before the first one, the rates are computed, from the length of an epoch."""
        if self.counts is not None:
            batches = self.task.dataset_to_epoch_iter.get(self.task.dataset(self.cfg.train_subset))
            if batches is None:
                fail(
                    "--embedding-memory appearances: found an epoch of unknown length (data in several folders, or "
                    "batches that are formed anew in each epoch); expected one folder; or use --embedding-beta2"
                )
            rates = appearance_rates(self.counts, len(batches) / self.cfg.update_freq[0])
            self._optimizer.param_groups[-1]["rates"], self.counts = rates, None
        super().step(*arguments, **options)


@register("adam_l2", dataclass=FairseqAdamConfig)
class FairseqAdamL2(AdamOptimizer):
    """`torch.optim.Adam`, whose weight decay is a part of the gradient, where that of fairseq's `adam` is decoupled.

    Adam divides by the size of the gradients. So where these are small, as in the rows of rare tokens, a decay that is
    a part of them moves a row to zero by up to the learning rate at each update; a decoupled one by a share of that.
    """

    optimizer_class = torch.optim.Adam
    supports_flat_params = True  # every number is updated by itself
    supports_memory_efficient_fp16 = property(fail_memory_efficient)  # fairseq asks in these modes alone
