"""Optimizers for fairseq's `--optimizer`. Importing this module registers them."""

import logging
from dataclasses import dataclass
from itertools import chain
from typing import Any, Optional

import torch
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import Adam, FairseqAdam, FairseqAdamConfig
from torch import nn

from ..errors import fail
from ..optim.embedding_adam import EmbeddingAdam
from . import option
from .output_layer import output_layer
from .trainer import build_optimizer  # noqa: F401 — calls `attach`

logger = logging.getLogger(__name__)


class AdamOptimizer(FairseqAdam):
    """An optimizer with the options of fairseq's `adam`, as fairseq reads them."""

    optimizer_class: type[torch.optim.Optimizer]

    def __init__(self, cfg: Any, params: Any) -> None:
        FairseqOptimizer.__init__(self, cfg)  # without fairseq's own Adam
        self._optimizer = self.optimizer_class(params, **self.optimizer_config)


class AdamOfEmbedding(AdamOptimizer):
    """fairseq's `adam`, whose output embedding, tied or not, is in a group of its own, which
    `attach` adds once the trainer has built it."""

    optimizer_class = Adam
    supports_flat_params = False

    def group_options(self, trainer: Any) -> dict[str, Any]:
        """The entries of the group of the output embedding."""
        raise NotImplementedError

    def attach(self, trainer: Any) -> None:
        """Gives the output embedding its group; one line and status 2 if there is none."""
        model, criterion = trainer.get_model(), trainer.get_criterion()
        layer = output_layer(model)
        if not isinstance(weight := getattr(layer, "weight", None), nn.Parameter):
            found = "without a single output embedding"
            if weight is not None:
                found = "whose output embedding is computed, as by weight normalization"
            fail(
                f"--optimizer {self.cfg._name}: found {type(model).__name__}, {found}; expected a "
                "decoder that ends in a linear layer over the target tokens"
            )
        # float32 copies of half precision are in the order of the parameters
        trained = [p for p in chain(model.parameters(), criterion.parameters()) if p.requires_grad]
        group = self._optimizer.param_groups[0]
        positions = [number for number, one in enumerate(trained) if one is weight]
        if not positions:
            logger.info(f"{self.cfg._name}: the output embedding is not trained")
            return
        own = {"params": [group["params"].pop(positions[0])], **self.group_options(trainer)}
        self._optimizer.add_param_group({**group, **own})


@register_optimizer("coupled_adam", dataclass=FairseqAdamConfig)
class FairseqCoupledAdam(AdamOfEmbedding):
    """fairseq's `adam`, with one second moment for all rows of the output embedding."""

    optimizer_class = EmbeddingAdam

    def group_options(self, trainer: Any) -> dict[str, Any]:
        return {"coupled": True}


@dataclass
class EmbeddingAdamConfig(FairseqAdamConfig):
    """Options of `--optimizer embedding_adam`."""

    embedding_beta2: Optional[float] = option(
        None, "beta2 of the output embedding, in [0, 1); by default that of --adam-betas"
    )


@register_optimizer("embedding_adam", dataclass=EmbeddingAdamConfig)
class FairseqEmbeddingAdam(AdamOfEmbedding):
    """fairseq's `adam`, with another β₂ for the output embedding."""

    def group_options(self, trainer: Any) -> dict[str, Any]:
        beta1, beta2 = self.optimizer_config["betas"]
        own = self.cfg.embedding_beta2
        return {"betas": (beta1, beta2 if own is None else own)}


@register_optimizer("adam_l2", dataclass=FairseqAdamConfig)
class FairseqAdamL2(AdamOptimizer):
    """`torch.optim.Adam`, whose weight decay is a part of the gradient (fairseq's is decoupled).

    Adam divides it by the size of the gradients: where these are small, as for rare tokens, it
    moves a row to zero by up to the learning rate at each update.
    """

    optimizer_class = torch.optim.Adam
    supports_flat_params = True  # every number is updated by itself
