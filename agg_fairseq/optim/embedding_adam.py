"""Coupled Adam: one second moment for all rows of an embedding."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch


class EmbeddingAdam(torch.optim.Optimizer):
    """fairseq's `adam`, with one second moment v for all rows of an embedding, in groups of
    parameters with `"coupled": True`: Coupled Adam (Stollenwerk & Stollenwerk, ACL 2025, Sec. 3).

        v ← β₂ v + (1 − β₂) mean_k g_k²

    The gradients g_k of a softmax likelihood into the rows of W sum to zero; divided by one √v, the
    steps do too, so that the mean row stays where it is.

    The update is that of `torch.optim.AdamW`, but that epsilon is added before the bias correction.
    Half-precision parameters are updated in float32 and rounded; their state is float32.

    Args:
        params: parameters, or groups of them. Coupled groups contain matrices, (V, D) each. Other
            options are those of `torch.optim.AdamW`.

    Raises:
        ValueError: an option is out of its range, or a coupled parameter is no matrix.

    Examples:
        >>> hidden, output = torch.nn.Linear(4, 8), torch.nn.Linear(8, 100, bias=False)
        >>> groups = [{"params": hidden.parameters()}, {"params": output.parameters(), "coupled": True}]
        >>> optimizer = EmbeddingAdam(groups, lr=0.001, betas=(0.9, 0.98))
        >>> output(hidden(torch.ones(2, 4))).logsumexp(1).sum().backward()
        >>> optimizer.step()
    """

    supports_memory_efficient_fp16 = True  # asked by fairseq

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
        for beta in group["betas"]:
            if not (isinstance(beta, float | int) and 0 <= beta < 1):
                raise ValueError(f"expected betas in [0, 1), got {beta}")
        for parameter in group["params"] if group["coupled"] else ():
            if parameter.ndim != 2:
                raise ValueError(
                    "expected coupled parameters of shape (V, D), got one of shape "
                    f"{tuple(parameter.shape)}, as the flat ones that FSDP1 and ZeRO make; FSDP2 "
                    "keeps matrices"
                )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state, which stays in float32. torch casts it to the dtype of the parameter: in
        float16 most second moments would become 0. ValueError for that of another optimizer."""
        if any("coupled" not in group for group in state_dict["param_groups"]):
            raise ValueError("expected the state of an EmbeddingAdam, got another optimizer's")
        super().load_state_dict(state_dict)
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            for parameter, key in zip(group["params"], saved["params"], strict=True):
                for name, value in state_dict["state"].get(key, {}).items():
                    if torch.is_tensor(value):
                        self.state[parameter][name] = value.to(parameter.device, copy=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if (gradient := parameter.grad) is not None:
                    self.update(parameter, gradient, self.state[parameter], **group)
        return loss

    def update(
        self,
        parameter: torch.Tensor,
        gradient: torch.Tensor,
        state: dict[str, Any],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        coupled: bool,
        **_: Any,
    ) -> None:
        """The update of one parameter, in place."""
        dtype = torch.promote_types(parameter.dtype, torch.float32)
        # copies, or the parameter itself
        weight, gradient = parameter.to(dtype), gradient.to(dtype)
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight[0] if coupled else weight)
        for name in ("exp_avg", "exp_avg_sq"):
            # fairseq's memory-efficient fp16 restores it on the CPU
            state[name] = state[name].to(weight.device)
        state["step"] += 1
        (beta1, beta2), step = betas, state["step"]
        first, second = state["exp_avg"], state["exp_avg_sq"]
        first.mul_(beta1).add_(gradient, alpha=1 - beta1)
        if coupled:
            second.mul_(beta2).add_(gradient.square().mean(0), alpha=1 - beta2)
        else:
            second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        step_size = lr * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        weight.add_(weight, alpha=-weight_decay * lr)
        weight.addcdiv_(first, second.sqrt().add_(eps), value=-step_size)
        if weight is not parameter:
            parameter.copy_(weight)
