"""A linear layer whose backward pass gates the gradient into its weight. Any loss of the logits may
follow: "AGG does not alter the form of the loss function" (Yu et al. 2022, Sec. 5.1).

With features H (N, D), output embedding W (V, D), bias b (V,), targets y (N,), and the gradient
Z = dL/dlogits (N, V) of a loss L,

    logits    = H Wᵀ + b
    dL/dH     = Z W                                                        never gated
    dL/dW[k]  = Σ_i G[i, k] Z[i, k] H[i]
    dL/db[k]  = Σ_i G[i, k] Z[i, k]
    G[i, k]   = 1       if k = y_i
              = g1[k]   if y_i is not rare
              = g2[k]   if y_i is rare

Where W is sharded by rows over processes (a DTensor), each has its part of the logits. Whether y_i is
rare is known to all of them, and G = 1 to the one with the row of y_i; dL/dH is summed over them.

The papers' models have no bias. It is gated like the row because a rare token's whole logit has to
be held back: otherwise every position pushes the bias down for all tokens but its target, and what
degenerates is the bias.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from .compiling import compiled
from .gates import Gates


def gated_linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    gates: Gates | None,
) -> Tensor:
    """`F.linear(input, weight, bias)`, with gates on the gradient into `weight` and `bias`.

    Args:
        input: (..., D) H, floating point.
        weight: (V, D) W, the output embedding. If it is a DTensor, sharded by rows over one dimension
            of a mesh as `ColwiseParallel` does, then so is `input`, the same in all its processes,
            and so are the logits.
        bias: (V,) b, or None.
        target: (...) y, int64, the token that each position is to predict. A number out of [0, V),
            such as −100, is none; its position is gated like those whose target is not rare.
        gates: the gates of the update; with None this is `F.linear`.

    Returns:
        (..., V) the logits.

    Raises:
        ValueError: the shapes do not fit, or W is sharded in another way.

    Examples:
        >>> H, W, y = torch.ones(1, 1), torch.zeros(3, 1, requires_grad=True), torch.tensor([0])
        >>> gates = Gates(torch.tensor([False, False, True]), g1=torch.tensor([1.0, 1.0, 0.5]))
        >>> F.cross_entropy(gated_linear(H, W, None, y, gates), y).backward()
        >>> (6 * W.grad.squeeze(1)).round()  # P − Q is −2/3, 1/3 and 1/3
        tensor([-4.,  2.,  1.])

    Reference: Yu et al. (2022), "Rare Tokens Degenerate All Tokens", Eqs. 6–10 and 23.
    """
    checked = None if gates is None else target
    input, weight, bias, rows = layer_of_process(input, weight, bias, checked, gates)
    if gates is None:
        return rows.join(F.linear(input, weight, bias))
    return rows.join(_GatedLinear.apply(input, weight, bias, target, gates, rows.first))


class Rows(NamedTuple):
    """The rows of W that this process has."""

    first: int  # the number of the first one
    vocabulary: int  # V
    mesh: Any = None  # of one dimension: the processes that share W; None: it has all

    def join(self, logits: Tensor) -> Tensor:
        """All logits (..., V), a DTensor if this process has those of its rows only."""
        if self.mesh is None:
            return logits
        from torch.distributed.tensor import DTensor, Shard

        shape = torch.Size((*logits.shape[:-1], self.vocabulary))
        stride = torch.empty(shape, device="meta").stride()
        placements = [Shard(logits.dim() - 1)]
        return DTensor.from_local(logits, self.mesh, placements, shape=shape, stride=stride)


def layer_of_process(
    features: Any, weight: Any, bias: Any, target: Tensor | None, gates: Gates | None
) -> tuple[Tensor, Tensor, Tensor | None, Rows]:
    """H (..., D), and what this process has of W (V, D) and b (V,) or None, which are DTensors where
    W is sharded; the gradients of the processes into H are then summed.

    ValueError for shapes, targets (...) and gates (V,) that do not fit each other, and if W is not
    sharded by rows. `F.linear` checks a layer without targets.
    """
    if target is not None:
        is_typed = features.is_floating_point() and not target.is_floating_point()
        if not is_typed or target.shape != features.shape[:-1]:
            found = " and ".join(f"{one.dtype} {tuple(one.shape)}" for one in (features, target))
            raise ValueError(
                "expected floating-point features (..., D) and whole target of shape (...), got "
                f"{found}"
            )
    rare, rows = None if gates is None else gates.rare, weight.shape[:1]
    for name, one in (("bias", bias), ("gates", rare)):
        if one is not None and (one.shape != rows or one.device != weight.device):
            raise ValueError(
                f"expected {name} {tuple(rows)}, got {tuple(one.shape)} on {one.device}, where the "
                f"weight is on {weight.device}"
            )
    if not hasattr(weight, "device_mesh"):
        return features, weight, bias, Rows(0, len(weight))
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    if weight.placements != (Shard(0),) or not isinstance(features, DTensor):
        raise ValueError(
            "expected an output embedding that is whole, or sharded by rows over one dimension of a "
            "mesh, of which the features are a DTensor, got placements "
            f"{weight.placements} and a {type(features).__name__}"
        )
    mesh = weight.device_mesh
    h = features.redistribute(mesh, [Replicate()]).to_local(grad_placements=[Partial()])
    b = None if bias is None else bias.redistribute(mesh, [Shard(0)]).to_local()
    first = mesh.get_local_rank() * -(-len(weight) // mesh.size())  # as of torch.chunk
    return h, weight.to_local(), b, Rows(first, len(weight), mesh)


def whole(tensor: Any) -> Tensor:
    """A tensor, of a DTensor all of it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


class ReplacedLinear(TorchFunctionMode):
    """While it is entered, `F.linear` with the weight of a layer is another function, `linear`; but
    not where the backward pass calls it again, as in torch's checkpoint: it is not entered there."""

    def __init__(self, layer: nn.Module, linear: Callable[..., Tensor]) -> None:
        super().__init__()
        self.layer, self.linear, self.has_grad = layer, linear, torch.is_grad_enabled()

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        options = options or {}
        if function is F.linear:
            weight = options["weight"] if "weight" in options else arguments[1]
            if weight is self.layer.weight:  # weight normalization makes it anew in each pass
                if torch.is_grad_enabled() == self.has_grad and not is_checkpointed():
                    function = self.linear
        return function(*arguments, **options)


def changes_when_read(layer: Any) -> bool:
    """Does a parametrization of W go on in each pass of a training?"""
    if not parametrize.is_parametrized(layer):
        return False
    was_training = layer.training
    layer.train()
    first, second = layer.weight, layer.weight
    layer.train(was_training)
    return not first.equal(second)


def is_checkpointed() -> bool:
    """Is this in torch's checkpoint that is not re-entrant, by the hooks that it installs?"""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return bool(hooks) and hooks[0].__module__ == "torch.utils.checkpoint"


class _GatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        gates: Gates,
        first: int,
    ) -> Tensor:
        """The logits (..., V)."""
        ctx.save_for_backward(input, weight, bias, target)
        ctx.gates, ctx.first = gates, first
        return F.linear(input, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad_logits: Tensor) -> tuple[Tensor | None, ...]:
        """dL/dH of the whole gradient, and dL/dW and dL/db of that through the gates."""
        refuse_second_derivatives()
        input, weight, bias, target = ctx.saved_tensors
        wants_input, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        grad_input = grad_weight = grad_bias = None
        grad_logits, dtype = grad_logits.reshape(-1, len(weight)), grad_logits.dtype  # N x V
        if wants_input:
            grad_input = (grad_logits @ weight.to(dtype)).view(input.shape).to(input.dtype)
        if wants_weight or wants_bias:
            grad_logits = grad_logits.clone()
            gate_grad_logits_(grad_logits, target.reshape(-1), ctx.gates, ctx.first)
        if wants_weight:
            features = input.reshape(-1, input.size(-1)).to(dtype)
            grad_weight = (grad_logits.t() @ features).to(weight.dtype)
        if wants_bias and bias is not None:
            grad_bias = grad_logits.sum(0).to(bias.dtype)
        return grad_input, grad_weight, grad_bias, None, None, None


def refuse_second_derivatives() -> None:
    """Raises RuntimeError in a backward pass with create_graph, where torch's `once_differentiable`
    would not if the incoming gradient has no graph: second derivatives would then be wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError("this loss has no second derivatives; leave out create_graph=True")


def gate_grad_logits_(grad_logits: Tensor, target: Tensor, gates: Gates, first: int = 0) -> None:
    """Multiplies dL/dlogits (C, V), or of it the columns from `first` on, by G in place, for targets
    y (C,)."""
    columns = slice(first, first + grad_logits.size(1))
    g1, g2 = (None if gate is None else gate[columns] for gate in (gates.g1, gates.g2))
    has_target = (target >= 0) & (target < len(gates.rare))
    is_rare = gates.rare.index_select(0, target.where(has_target, 0)) & has_target  # C
    y = target - first
    is_here = (y >= 0) & (y < grad_logits.size(1))  # the target's column
    y = y.where(is_here, 0)
    if grad_logits.is_cuda:  # one pass, without waiting for the number of rare rows
        compiled(_multiply_by_gates_, (grad_logits, y, is_here, is_rare, g1, g2))
        return
    rows = is_rare.nonzero().squeeze(1)  # few
    saved, target_part = grad_logits[rows], grad_logits.gather(1, y[:, None])
    if g1 is not None:
        grad_logits.mul_(g1.to(grad_logits.dtype))
    if len(rows):
        grad_logits[rows] = saved if g2 is None else saved * g2.to(grad_logits.dtype)
    target_part = target_part.where(is_here[:, None], grad_logits.gather(1, y[:, None]))
    grad_logits.scatter_(1, y[:, None], target_part)


def _multiply_by_gates_(
    grad_logits: Tensor,
    y: Tensor,
    is_here: Tensor,
    is_rare: Tensor,
    g1: Tensor | None,
    g2: Tensor | None,
) -> None:
    tokens = torch.arange(grad_logits.size(1), device=grad_logits.device)
    is_target = (tokens == y[:, None]) & is_here[:, None]  # C x V
    g1 = grad_logits.new_ones(1) if g1 is None else g1
    g2 = grad_logits.new_ones(1) if g2 is None else g2
    grad_logits.mul_(torch.where(is_target, 1.0, torch.where(is_rare[:, None], g2, g1)))
