"""`--optimizer coupled_adam`, `adam_l2` and `nt_asgd`. Importing this module registers them with fairseq."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, List

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import OPTIMIZER_REGISTRY, FairseqOptimizer, register_optimizer
from omegaconf import II, OmegaConf

from ..awd_lstm.nt_asgd import NTASGD
from ..errors import fail
from ..fairseq_glue.registries import register_once
from ..fairseq_glue.trainer import hook_trainer, validate_and_save_average
from .coupled_adam import CoupledAdam

logger = logging.getLogger(__name__)


register = partial(register_once, OPTIMIZER_REGISTRY, register_optimizer)
"""The decorator of each optimizer: `@register(name, dataclass=…)`."""


def first_rate(lr: Any) -> float:
    """The learning rate of the first epoch, from fairseq's option, a number or a list of them."""
    return lr[0] if isinstance(lr, Collection) else lr


def refuse_memory_efficient_half_precision(cfg: Any, name: str) -> None:
    """Ends in one line and status 2 where half-precision parameters have no float32 copies for the optimizer to train.

    Args:
        cfg: options, with `memory_efficient_fp16` and `memory_efficient_bf16`.
        name: of the optimizer, which computes in the dtype of the parameters.
    """
    if cfg.memory_efficient_fp16 or cfg.memory_efficient_bf16:
        fail(f"--optimizer {name}: found --memory-efficient-fp16 or -bf16; expected --fp16, --bf16 or --amp")


@dataclass
class CoupledAdamConfig(FairseqDataclass):
    """Options of `--optimizer coupled_adam`: those of fairseq's `adam`."""

    adam_betas: Any = field(default=(0.9, 0.999), metadata={"help": "betas for Adam optimizer"})
    adam_eps: float = field(default=1e-8, metadata={"help": "epsilon for Adam optimizer"})
    weight_decay: float = field(default=0.0, metadata={"help": "decoupled weight decay"})
    lr: List[float] = II("optimization.lr")


class AdamOptimizer(FairseqOptimizer):
    """An optimizer with the options of fairseq's `adam`."""

    name: str
    optimizer_class: type[torch.optim.Optimizer]

    def __init__(self, cfg: Any, params: Any) -> None:
        super().__init__(cfg)
        try:
            self._optimizer = self.optimizer_class(params, **self.optimizer_config)
        except ValueError as error:
            fail(f"--optimizer {self.name}: {error}")

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The options that replace those in a checkpoint, so that a resume can change them."""
        betas = self.cfg.adam_betas
        if isinstance(betas, str):  # "(0.9, 0.98)", from a command line
            try:
                betas = [float(beta) for beta in betas.strip("()[] ").split(",")]
            except ValueError:
                betas = []
        elif OmegaConf.is_config(betas):
            betas = OmegaConf.to_container(betas)
        if len(betas) != 2:
            fail(f"--adam-betas: expected two numbers such as '(0.9, 0.98)', got {self.cfg.adam_betas!r}")
        return {
            "lr": first_rate(self.cfg.lr),
            "betas": tuple(betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }


@register("coupled_adam", dataclass=CoupledAdamConfig)
class FairseqCoupledAdam(AdamOptimizer):
    """fairseq's `adam`, with one second moment for all rows of the output embedding.

    fairseq tells an optimizer nothing of the model, so that `attach` adds what it needs once the trainer has built it.
    """

    name = "coupled_adam"
    optimizer_class = CoupledAdam

    @property
    def supports_memory_efficient_fp16(self) -> bool:
        """The update of half-precision parameters is in float32."""
        return True

    @property
    def supports_flat_params(self) -> bool:
        """One flat tensor of all parameters has no rows."""
        return False

    def attach(self, trainer: Any) -> None:
        """Couples the rows of the output embedding, which is the input embedding too where the two are tied.

        Args:
            trainer: that has built this optimizer.

        Raises:
            SystemExit: with status 2, after one line: the model has no such matrix.
        """
        model, criterion = trainer.get_model(), trainer.get_criterion()
        decoder = getattr(model, "decoder", None)
        tied = decoder.embed_tokens if getattr(decoder, "share_input_output_embed", False) else None
        layer = getattr(decoder, "output_projection", getattr(decoder, "fc_out", tied))
        weight = getattr(layer, "weight", None)
        if weight is None or getattr(decoder, "adaptive_softmax", None) is not None:
            fail(
                f"--optimizer coupled_adam: found {type(model).__name__} without a single output embedding; expected a "
                "decoder that ends in a linear layer over the target tokens (without --adaptive-softmax-cutoff)"
            )
        # fairseq's optimizers for half precision train float32 copies, in the order of the parameters.
        trained = [p for p in chain(model.parameters(), criterion.parameters()) if p.requires_grad]
        group = self._optimizer.param_groups[0]
        position = next((number for number, parameter in enumerate(trained) if parameter is weight), None)
        if position is None:
            logger.info("coupled_adam: the output embedding is not trained, so that no second moment is averaged")
            return
        coupled = group["params"].pop(position)
        self._optimizer.add_param_group({**group, "params": [coupled], "coupled": True})
        rows, columns = coupled.shape
        logger.info(f"coupled_adam: the {rows} rows of the output embedding share a second moment of {columns} numbers")


@dataclass
class AdamL2Config(CoupledAdamConfig):
    """Options of `--optimizer adam_l2`: those of fairseq's `adam`."""

    weight_decay: float = field(default=0.0, metadata={"help": "L2 penalty: added to the gradient as this × weight"})
    memory_efficient_fp16: bool = II("common.memory_efficient_fp16")
    memory_efficient_bf16: bool = II("common.memory_efficient_bf16")


@register("adam_l2", dataclass=AdamL2Config)
class FairseqAdamL2(AdamOptimizer):
    """`torch.optim.Adam`, whose weight decay is a part of the gradient, where that of fairseq's `adam` is decoupled.

    The difference is largest for rows with small gradients, such as those of rare tokens: Adam divides by their size,
    so that a decay that is a part of them moves such a row to zero by up to the learning rate at each update, whatever
    the weight decay. A decoupled decay of 0.001 moves it by 0.001 times that.
    """

    name = "adam_l2"
    optimizer_class = torch.optim.Adam

    def __init__(self, cfg: Any, params: Any) -> None:
        refuse_memory_efficient_half_precision(cfg, self.name)
        super().__init__(cfg, params)

    @property
    def supports_flat_params(self) -> bool:
        """Every number is updated by itself."""
        return True


@dataclass
class NTASGDConfig(FairseqDataclass):
    """Options of `--optimizer nt_asgd`."""

    weight_decay: float = field(default=0.0, metadata={"help": "weight decay, added to the gradient"})
    asgd_patience: int = field(
        default=5,
        metadata={
            "help": "averaging of the weights starts when the result of a validation is worse than the best one, not "
            "counting the last N before it; 0: with the first update"
        },
    )
    lr: List[float] = II("optimization.lr")
    memory_efficient_fp16: bool = II("common.memory_efficient_fp16")
    memory_efficient_bf16: bool = II("common.memory_efficient_bf16")


@register("nt_asgd", dataclass=NTASGDConfig)
class FairseqNTASGD(FairseqOptimizer):
    """SGD that averages its weights once validation no longer improves; the average is validated and saved."""

    def __init__(self, cfg: Any, params: Any) -> None:
        super().__init__(cfg)
        refuse_memory_efficient_half_precision(cfg, "nt_asgd")
        if cfg.asgd_patience < 0:
            fail(f"--asgd-patience: expected a number of validations, or 0, got {cfg.asgd_patience}")
        try:
            self._optimizer = NTASGD(params, **self.optimizer_config)
        except ValueError as error:
            fail(f"--optimizer nt_asgd: {error}")

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The options of `NTASGD` that replace those in a checkpoint, so that a resume can change them."""
        rate, patience = first_rate(self.cfg.lr), self.cfg.asgd_patience
        return {"lr": rate, "weight_decay": self.cfg.weight_decay, "patience": patience}

    def attach(self, trainer: Any) -> None:
        """Has the trainer validate and save the average."""
        validate_and_save_average(trainer)


hook_trainer()
