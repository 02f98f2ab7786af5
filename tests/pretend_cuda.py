"""A device "cuda" on any machine: tensors that say they are there, and whose numbers are on the CPU.

Under `PretendCuda`, an operation on tensors of two devices fails as it does on a GPU. Everything is
computed, so that results can be compared.
"""

import pytest
import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

CUDA = torch.device("cuda", 0)  # torch may know no "cuda" without its number
INDEXING = ("index", "index_put", "index_put_")  # take their indices from the CPU too


class Pretended(torch.Tensor):
    """A tensor "on CUDA" over one on the CPU."""

    @staticmethod
    def __new__(cls, inner):
        # "meta" within torch, which may lack CUDA
        given = {"dtype": inner.dtype, "device": "meta", "strides": inner.stride()}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **given)

    def __init__(self, inner):
        self.inner = inner

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        raise RuntimeError("used outside of PretendCuda")


def unwrapped(value):
    return value.inner if isinstance(value, Pretended) else value


class Event:
    """The stream of a device, and an event in it: over at once."""

    def record_event(self):
        return self

    def synchronize(self):
        pass


class PretendCuda(TorchDispatchMode):
    """Runs operations on `Pretended` tensors, and makes them where a device is asked for."""

    def __enter__(self):
        torch._C._ensureCUDADeviceGuardSet()  # one that does nothing, as for FakeTensorMode
        self.replaced = pytest.MonkeyPatch()
        self.replaced.setattr(torch.cuda, "_lazy_init", lambda: None)
        self.replaced.setattr(torch.cuda, "current_stream", lambda device: Event())
        self.replaced.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
        return super().__enter__()

    def __exit__(self, *error):
        self.replaced.undo()
        super().__exit__(*error)

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options, name = dict(options or {}), function.overloadpacket.__name__
        leaves = tree_leaves((arguments, options))
        tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
        is_on_cuda = any(isinstance(one, Pretended) for one in tensors)
        checked = tensors[:1] if name in INDEXING else tensors
        devices = {isinstance(one, Pretended) for one in checked if one.dim()}
        if len(devices) > 1 and name not in ("copy_", "_to_copy"):
            raise RuntimeError(f"{name}: expected all tensors on one device, found cuda and cpu")
        to = torch.device(options["device"]) if options.get("device") is not None else None
        to = CUDA if to is not None and to.type == "meta" else to  # autograd's, of a `Pretended`
        if to is not None:
            is_on_cuda, options["device"] = to.type == "cuda", torch.device("cpu")
        given, named = tree_map(unwrapped, (arguments, options))
        # a product whose sums are float32
        if name in ("mm", "addmm") and "dtype" in function._overloadname:
            wide = [one.float() for one in given if isinstance(one, torch.Tensor)]
            numbers = {key: one for key, one in named.items() if key in ("alpha", "beta")}
            result = function.overloadpacket(*wide, **numbers)
            found = named["out"].copy_(result) if named.get("out") is not None else result
        else:
            found = function(*given, **named)
        if torch.Tag.inplace_view in function.tags:
            with no_dispatch():
                function(*arguments)  # the shape that torch sees
        if name.endswith("_"):
            return None if name.startswith("_foreach") else arguments[0]  # in place
        if not is_on_cuda:
            return found
        return tree_map(lambda one: Pretended(one) if isinstance(one, torch.Tensor) else one, found)


def there(value, device):
    """Tensors, those in dictionaries, tuples and dataclasses too, on a device."""

    def move(one):
        if hasattr(one, "__dataclass_fields__"):
            return type(one)(**there(vars(one), device))
        return one.to(device) if isinstance(one, torch.Tensor) else one

    return tree_map(move, value)
