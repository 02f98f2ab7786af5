"""Small chunks of the loss; and finds where the host would have to wait for a GPU."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode


def use_chunks(elements, patch):
    """Makes the loss hold about so many logits at a time; a row at least."""
    patch.setattr("agg_fairseq.functional.early_gradients.CHUNK_ELEMENTS", elements)


def leave_out_what_only_a_cpu_reads(patch):
    """Leaves out the look at the loss's gradient, which the host does not read on a GPU."""
    patch.setattr("agg_fairseq.functional.early_gradients.is_one", lambda scale: False)


class WaitsForTheDevice(TorchDispatchMode):
    """Collects the operations whose result the host needs, so that it would wait for a GPU."""

    ALWAYS = (
        *("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten._unique2", "aten.bincount"),
        "aten.lift_fresh",  # a tensor made of numbers of the host: the copy to the device waits for it
    )
    READING = ("tolist", "numpy", "cpu")  # methods that read a tensor's memory on a CPU, without an operation

    def __init__(self):
        super().__init__()
        self.waits = []
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
            self.waits.append(name)
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
            self.waits.append(name)
        return function(*arguments, **(keywords or {}))
