"""Adam with another second moment for embeddings: a β₂ of its own, or one for all rows."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class EmbeddingAdam(torch.optim.Optimizer):
    r"""AdamW with another second moment for embedding matrices, in groups of their own.

    Adam divides the step of each row w_k by √v_k, a mean of its squared gradients over about the
    last 1/(1 − β₂) updates. For a token that is rarer than that, v_k decays between its
    appearances, and pushes away from the contexts of other tokens become larger steps than pulls to
    its own (see `functional.adam_memory`). Two remedies, each an entry of a group of parameters:

    - ``betas``: with another β₂ for the matrix, a number, or (V,) one for each row.
    - ``coupled``: one second moment for all rows, Coupled Adam (Stollenwerk & Stollenwerk, ACL
      2025, Sec. 3). The gradients of a softmax likelihood with respect to the rows of W sum to
      zero; divided by one √v, the steps do too, so that the mean row stays where it is:

    .. math::
        \bar v \leftarrow \beta_2 \bar v + (1 - \beta_2) \frac{1}{V} \sum_j g_j^2

      The paper averages the second moments of all rows, which gives the same numbers.

    All other parameters are trained exactly as by fairseq's `adam`: as by `torch.optim.AdamW`, but
    that epsilon is added before the bias correction: the denominator is `sqrt(v) + ε`, with a step
    size of `lr · sqrt(1 − β₂ᵗ) / (1 − β₁ᵗ)`. Half-precision parameters are updated in float32 and
    rounded; their state is float32.

    Args:
        params: parameters, or groups of them. Groups with `"coupled": True`, or a (V,) β₂, contain
            the embedding matrices, (V, D) each: the output embedding, tied or not.
        lr: learning rate.
        betas: decay rates of the first and the second moment, in [0, 1).
        eps: added to the denominator.
        weight_decay: decoupled, multiplied by the learning rate.

    Raises:
        ValueError: an option is out of its range.

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
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "coupled": False})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for name in ("lr", "eps", "weight_decay"):
            if not group[name] >= 0:
                raise ValueError(f"expected {name} of at least 0, got {group[name]}")
        for beta in map(torch.as_tensor, group["betas"]):
            if not ((beta >= 0) & (beta < 1)).all():
                raise ValueError(f"expected betas in [0, 1), got {beta}")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state of this optimizer, or one of torch's Adam and AdamW with the same groups,
        without their betas.

        The state stays in float32, where torch casts it to the dtype of the parameter. In float16
        most second moments would become 0, and the next step as long as 1 / eps lets it be.
        """
        own = [{name: group[name] for name in ("betas", "coupled")} for group in self.param_groups]
        super().load_state_dict(state_dict)
        for number, saved in enumerate(state_dict["param_groups"]):
            group = self.param_groups[number]
            if "coupled" not in saved:
                self.param_groups[number] = group = {**group, **own[number]}
            for parameter, key in zip(group["params"], saved["params"], strict=True):
                if key not in state_dict["state"]:
                    continue
                moments = state_dict["state"][key]
                first = moments["exp_avg"].to(parameter.device, copy=True)
                second = moments["exp_avg_sq"].to(parameter.device, copy=True)
                if group["coupled"] and second.dim() > 1:
                    second = second.mean(0)
                state = {"step": int(moments["step"]), "exp_avg": first, "exp_avg_sq": second}
                self.state[parameter] = state

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            # Gradients by parameter, those of the same number of steps together: on a GPU a few
            # launches. One in half precision is alone, since it is copied.
            together: dict[Any, dict[Tensor, Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                wide = torch.promote_types(parameter.dtype, torch.float32)
                state = self.state[parameter]
                if not state:
                    like = parameter[0] if group["coupled"] else parameter
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(parameter, dtype=wide)
                    state["exp_avg_sq"] = torch.zeros_like(like, dtype=wide)
                for name in ("exp_avg", "exp_avg_sq"):
                    # fairseq's memory-efficient fp16 restores it on the CPU.
                    state[name] = state[name].to(parameter.device)
                state["step"] += 1
                key = state["step"] if parameter.dtype == wide else parameter
                together.setdefault(key, {})[parameter] = parameter.grad
            for gradient_of in together.values():
                self._update(group, gradient_of)
        return loss

    def _update(self, group: dict[str, Any], gradient_of: dict[Tensor, Tensor]) -> None:
        """The update of fairseq's `adam`, for parameters of a group with the same number of
        steps."""
        beta1, beta2 = group["betas"]
        weights, gradients, first, second = [], [], [], []
        for parameter, gradient in gradient_of.items():
            state = self.state[parameter]
            step = state["step"]
            first.append(state["exp_avg"])
            second.append(state["exp_avg_sq"])  # (D,) if coupled
            weights.append(parameter.to(first[-1].dtype))  # a copy, or the parameter itself
            gradients.append(gradient.to(first[-1].dtype))

        torch._foreach_mul_(first, beta1)
        torch._foreach_add_(first, gradients, alpha=1 - beta1)
        if isinstance(beta2, Tensor):
            numerators, correction2 = [], 1.0
            for m, v, gradient in zip(first, second, gradients, strict=True):
                of_rows = beta2.to(m.device, torch.float64).unsqueeze(1)  # V x 1
                v.lerp_(gradient.square(), (1 - of_rows).to(v))
                numerators.append(m * (1 - of_rows**step).sqrt().to(m))
        else:
            numerators, correction2 = first, 1 - beta2**step
            torch._foreach_mul_(second, beta2)
            if group["coupled"]:
                squares = [gradient.square().mean(0) for gradient in gradients]
                torch._foreach_add_(second, squares, alpha=1 - beta2)
            else:
                torch._foreach_addcmul_(second, gradients, gradients, value=1 - beta2)
        denominators = torch._foreach_sqrt(second)
        torch._foreach_add_(denominators, group["eps"])

        if group["weight_decay"] != 0:
            torch._foreach_add_(weights, weights, alpha=-group["weight_decay"] * group["lr"])
        step_size = group["lr"] * math.sqrt(correction2) / (1 - beta1**step)
        torch._foreach_addcdiv_(weights, numerators, denominators, value=-step_size)
        for parameter, weight in zip(gradient_of, weights, strict=True):
            if weight is not parameter:
                parameter.copy_(weight)
