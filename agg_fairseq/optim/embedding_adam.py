"""Adam with another second moment for embeddings: a β₂ of its own, or one for all rows."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class EmbeddingAdam(torch.optim.Optimizer):
    r"""AdamW in which embedding matrices, in groups of their own, have another second moment than
    other parameters.

    Adam divides the step of each row w_k of the output embedding by √v_k, where v_k is a mean of
    its squared gradients over about the last 1/(1 − β₂) updates. A rare token appears once in N
    updates. Where N is larger than that memory, v_k decays between its appearances, and the
    gradients that push it away from the contexts of other tokens become larger steps than the ones
    that pull it to its own (see `functional.adam_memory`). Two remedies, each an entry of a group
    of parameters:

    - ``betas``: with another β₂ for the matrix, a number, or (V,) one for each row.
    - ``coupled``: one second moment for all rows, Coupled Adam (Stollenwerk & Stollenwerk, ACL
      2025, Sec. 3). The gradients of a softmax likelihood with respect to the rows of W sum to
      zero; divided by one √v, the steps do too, so that the mean row stays where it is:

    .. math::
        \bar v \leftarrow \beta_2 \bar v + (1 - \beta_2) \frac{1}{V} \sum_j g_j^2

      The paper averages the bias-corrected second moments of all V rows. All that is linear, so averaging the squared
      gradients first gives the same numbers, with D numbers of state in place of V·D.

    All other parameters are trained exactly as by fairseq's `adam`: decoupled weight decay, and
    epsilon added before the bias correction, so that the denominator above is `sqrt(v) + ε` with a
    step size of `lr · sqrt(1 − β₂ᵗ) / (1 − β₁ᵗ)`. It is `torch.optim.AdamW` but for that.

    Args:
        params: parameters, or groups of them. Groups with `"coupled": True`, or a (V,) β₂, contain
            the embedding matrices, (V, D) each: the output embedding, tied or not.
        lr: learning rate.
        betas: decay rates of the first and the second moment, in [0, 1).
        eps: added to the denominator.
        weight_decay: decoupled, multiplied by the learning rate.

    Half-precision parameters are updated in float32 and rounded; their state is float32.

    Raises:
        ValueError: one of the betas is out of its range.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 100, bias=False))
        >>> hidden, output = model
        >>> groups = [{"params": hidden.parameters()}, {"params": output.parameters(), "coupled": True}]
        >>> optimizer = EmbeddingAdam(groups, lr=0.001, betas=(0.9, 0.98))
        >>> model(torch.ones(2, 4)).logsumexp(1).sum().backward()
        >>> optimizer.step()
    """

    # asked by fairseq: half-precision parameters are updated in float32
    supports_memory_efficient_fp16 = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "coupled": False,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        for beta in map(torch.as_tensor, self.param_groups[-1]["betas"]):
            if not ((beta >= 0) & (beta < 1)).all():
                raise ValueError(f"expected betas in [0, 1), got {beta}")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As of `torch.optim.Optimizer`, but states stay in float32.

        torch casts the state to the dtype of the parameter. In float16 most second moments would
        become 0, and the next step would be as long as 1 / eps lets it be.
        """
        super().load_state_dict(state_dict)
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            for parameter, number in zip(group["params"], saved["params"], strict=True):
                for name, value in state_dict["state"].get(number, {}).items():
                    if isinstance(value, Tensor):
                        self.state[parameter][name] = value.to(parameter.device, copy=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """One update of all parameters that have a gradient; returns what `closure`, as of torch's,
        returned."""
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
                    state["exp_avg_sq"] = torch.zeros_like(
                        weight[0] if group["coupled"] else weight
                    )
                # fairseq's memory-efficient fp16 restores it on the CPU
                for name, value in state.items():
                    state[name] = value.to(weight.device) if isinstance(value, Tensor) else value
                state["step"] += 1
                first, second = state["exp_avg"], state["exp_avg_sq"]

                first.mul_(beta1).add_(gradient, alpha=1 - beta1)
                correction1 = 1 - beta1 ** state["step"]
                if isinstance(beta2, Tensor):
                    of_rows = beta2.to(weight.device, torch.float64).unsqueeze(1)  # V x 1
                    second.lerp_(gradient.square(), (1 - of_rows).to(weight))
                    first, correction2 = (
                        first * (1 - of_rows ** state["step"]).sqrt().to(weight),
                        1.0,
                    )
                else:
                    correction2 = 1 - beta2 ** state["step"]
                    if group["coupled"]:
                        second.mul_(beta2).add_(gradient.square().mean(0), alpha=1 - beta2)
                    else:
                        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                denominator = second.sqrt().add_(group["eps"])  # (D,) if coupled, for all rows

                if group["weight_decay"] != 0:
                    weight.add_(weight, alpha=-group["weight_decay"] * group["lr"])
                weight.addcdiv_(
                    first, denominator, value=-group["lr"] * math.sqrt(correction2) / correction1
                )
                if is_half:
                    parameter.copy_(weight)
        return loss
