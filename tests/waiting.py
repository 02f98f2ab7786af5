"""Takes the GPU's form of the loss without a GPU, and finds where the host would have to wait for one."""

import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import agg_fairseq.functional  # noqa: F401 — the modules that are looked up


def use(form, patch):
    """Lets every operation take a form of the forward pass, whatever the device."""
    for name in ("gated_cross_entropy", "factorized_softmax"):
        module = sys.modules[f"agg_fairseq.functional.{name}"]  # the package has functions of these names
        patch.setattr(module, "forward_pass", lambda features, options: form)


class WaitsForTheDevice(TorchDispatchMode):
    """Collects the operations that a GPU could not run without telling the host what it found.

    Methods that read a tensor's memory reach no operation on a CPU, and are watched by themselves.
    """

    ALWAYS = (
        *("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten._unique2", "aten.bincount"),
        "aten.lift_fresh",  # numbers of the host, made a tensor: copied to the device, which has to have done with them
    )
    READING = ("tolist", "numpy", "cpu")

    def __init__(self):
        super().__init__()
        self.found = []
        self.methods = pytest.MonkeyPatch()

    def __enter__(self):
        for name in self.READING:
            self.methods.setattr(torch.Tensor, name, self._recorded(name, getattr(torch.Tensor, name)))
        return super().__enter__()

    def __exit__(self, *error):
        self.methods.undo()
        return super().__exit__(*error)

    def _recorded(self, name, method):
        def recorded(*arguments, **keywords):
            self.found.append(name)
            return method(*arguments, **keywords)

        return recorded

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        name = str(function.overloadpacket)
        by_mask = name.startswith("aten.index") and any(
            isinstance(t, torch.Tensor) and t.dtype == torch.bool
            for part in arguments[1:2]
            for t in (part if isinstance(part, (list, tuple)) else [part])
        )
        if name in self.ALWAYS or by_mask:
            self.found.append(name)
        return function(*arguments, **(keywords or {}))
