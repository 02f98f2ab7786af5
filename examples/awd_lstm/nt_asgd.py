"""`--optimizer nt_asgd`: SGD that averages its iterates once validation no longer improves (Merity
et al. 2018)."""

import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, List

import torch
from fairseq import checkpoint_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II
from torch import Tensor

from agg_fairseq.fairseq_plugin import option

logger = logging.getLogger(__name__)


class NTASGD(torch.optim.Optimizer):
    r"""Non-monotonically triggered averaged stochastic gradient descent.

    The iterates are those of SGD, `w ← w − lr · (g + weight_decay · w)`. `observe` is told the loss
    of each validation. Averaging begins when a loss is worse than the best of all but the last n
    before it (Algorithm 1):

    .. math:: t > n \text{ and } v_t > \min_{l < t - n} v_l

    From the k-th update after that, k = 2, 3, …, the average is the mean of the iterates 2 to k.
    This is `torch.optim.ASGD(t0=0, lambd=0)`, which the authors use; its average leaves the first
    iterate out, and after the first update it is that iterate.

    The average is what is validated and saved: `swap` exchanges it with the iterates, and back.
    Which of the two the parameters hold is part of the state, and so are the losses, so that a
    training resumes bit for bit from either.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        weight_decay: added to the gradient.
        patience: n, the non-monotone interval, in validations. 0: averages from the first update
            on.

    Examples:
        >>> weight = torch.nn.Parameter(torch.tensor([8.0]))
        >>> optimizer = NTASGD([weight], lr=0.25, patience=0)
        >>> for _ in range(3):
        ...     weight.grad = 2 * weight.detach()  # of weight², so that each update halves the weight
        ...     optimizer.step()
        >>> optimizer.swap()
        >>> weight  # the mean of 2 and 1
        Parameter containing:
        tensor([1.5000], requires_grad=True)
    """

    def __init__(
        self, params: Iterable[Any], lr: float, weight_decay: float = 0.0, patience: int = 5
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "patience": patience}
        # In every group, so that `state_dict` has them; read from the first one.
        super().__init__(
            params,
            defaults | {"averaging": patience == 0, "swapped": False, "losses": [], "last": None},
        )

    @property
    def averaging(self) -> bool:
        return self.param_groups[0]["averaging"]

    @property
    def swapped(self) -> bool:
        """Do the parameters hold the average?"""
        return self.param_groups[0]["swapped"]

    def observe(self, loss: float, updates: int) -> bool:
        """Records the loss of the validation after `updates` updates, once; returns whether
        averaging now begins."""
        group = self.param_groups[0]
        if updates == group["last"]:
            return False
        losses, patience = group["losses"], group["patience"]
        begins = (
            not self.averaging
            and len(losses) > patience
            and loss > min(losses[: len(losses) - patience])
        )
        for group in self.param_groups:
            group |= {
                "last": updates,
                "losses": [*losses, float(loss)],
                "averaging": group["averaging"] or begins,
            }
        return begins

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """One update of the iterates, which the parameters have to hold, and of their average;
        returns the loss."""
        if self.swapped:
            raise RuntimeError(
                "found the average in the parameters; call swap() before the next update"
            )
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad
                if group["weight_decay"]:
                    gradient = gradient.add(parameter, alpha=group["weight_decay"])
                parameter.add_(gradient, alpha=-group["lr"])
                if not group["averaging"]:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"], state["average"] = 0, torch.empty_like(parameter)
                state["step"] += 1
                average = state["average"]
                # torch.optim.ASGD is not used here: it would apply a changed learning rate one
                # update late.
                if state["step"] <= 2:
                    average.copy_(parameter)
                else:
                    average.add_(parameter - average, alpha=1 / (state["step"] - 1))
        return loss

    @torch.no_grad()
    def swap(self) -> None:
        """Exchanges the iterates and their average; without an average, nothing happens."""
        if not any(self.state.values()):
            return
        for group in self.param_groups:
            group["swapped"] = not group["swapped"]
            for parameter in group["params"]:
                if state := self.state.get(parameter):
                    held = parameter.clone()
                    parameter.copy_(state["average"])
                    state["average"].copy_(held)


@dataclass
class NTASGDConfig(FairseqDataclass):
    """Options of `--optimizer nt_asgd`."""

    weight_decay: float = option(0.0, "weight decay, added to the gradient")
    asgd_patience: int = option(
        5,
        "averaging of the weights starts when the result of a validation is worse than the best "
        "one, not counting the "
        "last N before it; 0: with the first update",
    )
    lr: List[float] = II("optimization.lr")


@register_optimizer("nt_asgd", dataclass=NTASGDConfig)
class FairseqNTASGD(FairseqOptimizer):
    """SGD that averages its weights once validation no longer improves; the average is validated
    and saved."""

    def __init__(self, cfg: Any, params: Any) -> None:
        super().__init__(cfg)
        self._optimizer = NTASGD(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The options of `NTASGD` that replace those in a checkpoint, so that a resume can change
        them."""
        return {
            "lr": self.cfg.lr[0],
            "weight_decay": self.cfg.weight_decay,
            "patience": self.cfg.asgd_patience,
        }

    def attach(self, trainer: Any) -> None:
        """Makes a trainer hold the average when it validates and saves, and the weights when it
        trains.

        A checkpoint then has the average as the model, for every tool that reads it, and the
        weights in the state of the optimizer, which is told the loss of each validation before the
        checkpoint is written, on all workers.
        """
        if hasattr(trainer, "before_saving"):  # the optimizer is built a second time in a resume
            return

        def hold(average: bool) -> None:
            optimizer = trainer.optimizer
            if optimizer.optimizer.swapped != average:
                optimizer.optimizer.swap()
                # from the float32 copies to the model
                if hasattr(optimizer, "_sync_fp32_params_to_fp16"):
                    optimizer._sync_fp32_params_to_fp16()

        def holding(average: bool, method: Callable[..., Any]) -> Callable[..., Any]:
            def held(*arguments: Any, **options: Any) -> Any:
                hold(average)
                return method(*arguments, **options)

            return held

        def before_saving(loss: float | None) -> None:
            updates = trainer.get_num_updates()
            # lower is better in `observe`
            sign = -1 if trainer.cfg.checkpoint.maximize_best_checkpoint_metric else 1
            if loss is not None and trainer.optimizer.optimizer.observe(
                sign * float(loss), updates
            ):
                logger.info(
                    f"validation has stopped improving: the average of the weights begins "
                    f"after {updates}"
                )
            hold(average=True)

        trainer.before_saving = before_saving
        trainer.begin_valid_epoch = holding(True, trainer.begin_valid_epoch)
        trainer.train_step = holding(False, trainer.train_step)


def _tell_trainer(save_checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """fairseq's `save_checkpoint`, which first calls `before_saving` of a trainer that has it."""

    @functools.wraps(save_checkpoint)  # with its attribute `best`
    def save(cfg: Any, trainer: Any, epoch_itr: Any, val_loss: float | None) -> Any:
        if hasattr(trainer, "before_saving"):
            trainer.before_saving(val_loss)
        return save_checkpoint(cfg, trainer, epoch_itr, val_loss)

    return save


checkpoint_utils.save_checkpoint = _tell_trainer(checkpoint_utils.save_checkpoint)
