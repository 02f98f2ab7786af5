"""Coupled Adam: the rows of an embedding matrix share one second moment (Stollenwerk & Stollenwerk, ACL 2025)."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class CoupledAdam(torch.optim.Optimizer):
    r"""AdamW in which the second moment of an embedding matrix is averaged over its rows.

    The gradients of a softmax likelihood with respect to the rows of the output embedding W (V, D) sum to zero, so that
    gradient descent leaves the mean row where it is. Adam divides each row by the root of its own second moment. The
    rows of rare tokens, whose gradients are small, then move as far as those of frequent ones, the steps no longer sum
    to zero, and the mean row drifts away from the origin. With one second moment for all rows, the steps sum to zero
    again. For row k, its gradient g_k, and step t (Sec. 3 of the paper):

    .. math::
        m_k &\leftarrow \beta_1 m_k + (1 - \beta_1) g_k \\
        \bar v &\leftarrow \beta_2 \bar v + (1 - \beta_2) \frac{1}{V} \sum_j g_j^2 \\
        w_k &\leftarrow w_k - \mathrm{lr} \cdot \mathrm{weight\_decay} \cdot w_k
            - \mathrm{lr} \frac{\hat m_k}{\sqrt{\hat{\bar v}} + \epsilon},
            \quad \hat m = \frac{m}{1 - \beta_1^t}, \quad \hat{\bar v} = \frac{\bar v}{1 - \beta_2^t}

    The paper averages the bias-corrected second moments of all V rows. All that is linear, so averaging the squared
    gradients first gives the same numbers, with D numbers of state in place of V·D.

    All other parameters are trained exactly as by fairseq's `adam`: decoupled weight decay, and epsilon added before
    the bias correction, so that the denominator above is `sqrt(v̄) + ε` with a step size of
    `lr · sqrt(1 − β₂ᵗ) / (1 − β₁ᵗ)`. It is `torch.optim.AdamW` but for that.

    Args:
        params: parameters, or groups of them. Groups with `"coupled": True` contain the embedding matrices, (V, D)
            each: the output embedding, tied or not. The theory does not cover an input embedding that is not tied.
        lr: learning rate.
        betas: decay rates of the first and the second moment, in [0, 1).
        eps: added to the denominator.
        weight_decay: decoupled, multiplied by the learning rate.

    Half-precision parameters are updated in float32 and rounded; their state is float32.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 100, bias=False))
        >>> hidden, output = model
        >>> groups = [{"params": hidden.parameters()}, {"params": output.parameters(), "coupled": True}]
        >>> optimizer = CoupledAdam(groups, lr=0.001)
        >>> model(torch.ones(2, 4)).logsumexp(1).sum().backward()
        >>> optimizer.step()
        >>> optimizer.state[output.weight]["exp_avg_sq"].shape
        torch.Size([8])
    """

    supports_memory_efficient_fp16 = True  # asked by fairseq: half-precision parameters are updated in float32

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if not (0 <= betas[0] < 1 and 0 <= betas[1] < 1):
            raise ValueError(f"betas: expected two numbers in [0, 1), got {tuple(betas)}")
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name}: expected a finite value of at least 0, got {value}")
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "coupled": False}
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As of `torch.optim.Optimizer`; the parameters of a coupled group are matrices."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if group["coupled"] and (wrong := [tuple(p.shape) for p in group["params"] if p.dim() != 2]):
            self.param_groups.pop()
            raise ValueError(f"expected coupled parameters of shape (V, D), got {wrong[0]}")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As of `torch.optim.Optimizer`, but the state of half-precision parameters stays in float32.

        torch casts it to the dtype of the parameter. In float16 most second moments would become 0, and the next step
        would be as long as 1 / eps lets it be.
        """
        super().load_state_dict(state_dict)
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            for parameter, number in zip(group["params"], saved["params"], strict=True):
                for name, value in state_dict["state"].get(number, {}).items():
                    if isinstance(value, Tensor):
                        self.state[parameter][name] = value.to(parameter.device, copy=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """One update of all parameters that have a gradient; returns what `closure`, as of torch's, returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                is_half = parameter.dtype in (torch.float16, torch.bfloat16)
                weight = parameter.float() if is_half else parameter
                gradient = parameter.grad.to(weight.dtype)

                state = self.state[parameter]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(weight)
                    state["exp_avg_sq"] = torch.zeros_like(weight[0] if group["coupled"] else weight)
                for name in ("exp_avg", "exp_avg_sq"):  # fairseq's memory-efficient fp16 restores it on the CPU
                    state[name] = state[name].to(weight)
                state["step"] += 1
                first, second = state["exp_avg"], state["exp_avg_sq"]

                first.mul_(beta1).add_(gradient, alpha=1 - beta1)
                if group["coupled"]:
                    second.mul_(beta2).add_(gradient.square().mean(0), alpha=1 - beta2)
                else:
                    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                denominator = second.sqrt().add_(group["eps"])  # (D,) if coupled, for all rows

                correction1, correction2 = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
                if group["weight_decay"] != 0:
                    weight.add_(weight, alpha=-group["weight_decay"] * group["lr"])
                weight.addcdiv_(first, denominator, value=-group["lr"] * math.sqrt(correction2) / correction1)
                if is_half:
                    parameter.copy_(weight)
        return loss
