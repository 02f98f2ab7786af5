"""SGD that begins to average its iterates once validation no longer improves (Merity, Keskar & Socher 2018)."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class NTASGD(torch.optim.Optimizer):
    r"""Non-monotonically triggered averaged stochastic gradient descent.

    The iterates are those of SGD, `w ← w − lr · (g + weight_decay · w)`. `observe` is told the loss of each validation.
    Averaging begins when a loss is worse than the best of all but the last n before it (Algorithm 1):

    .. math:: t > n \text{ and } v_t > \min_{l < t - n} v_l

    From the k-th update after that, k = 2, 3, …, the average is the mean of the iterates 2 to k. This is
    `torch.optim.ASGD(t0=0, lambd=0)`, which the authors use; its average leaves the first iterate out, and after the
    first update it is that iterate.

    The average is what is validated and saved: `swap` exchanges it with the iterates, and back. Which of the two the
    parameters hold is part of the state, and so are the losses, so that a training resumes bit for bit from either.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        weight_decay: added to the gradient.
        patience: n, the non-monotone interval, in validations. 0: averages from the first update on.

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

    def __init__(self, params: Iterable[Any], lr: float, weight_decay: float = 0.0, patience: int = 5) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "patience": patience}
        # In every group, so that `state_dict` has them; read from the first one.
        super().__init__(params, defaults | {"averaging": patience == 0, "swapped": False, "losses": [], "last": None})

    @property
    def averaging(self) -> bool:
        return self.param_groups[0]["averaging"]

    @property
    def swapped(self) -> bool:
        """Do the parameters hold the average?"""
        return self.param_groups[0]["swapped"]

    def observe(self, loss: float, updates: int) -> bool:
        """Records the loss of the validation after `updates` updates, once; returns whether averaging now begins."""
        group = self.param_groups[0]
        if updates == group["last"]:
            return False
        losses, patience = group["losses"], group["patience"]
        begins = not self.averaging and len(losses) > patience and loss > min(losses[: len(losses) - patience])
        for group in self.param_groups:
            group |= {"last": updates, "losses": [*losses, float(loss)], "averaging": group["averaging"] or begins}
        return begins

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """One update of the iterates, which the parameters have to hold, and of their average; returns the loss."""
        if self.swapped:
            raise RuntimeError("found the average in the parameters; call swap() before the next update")
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
                # torch.optim.ASGD is not used here: it would apply a changed learning rate one update late.
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
