"""Numbers on their way from a GPU."""

import torch
from torch import Tensor


class HostCopy:
    """Numbers on their way to the host, which waits for them when it reads them."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers.to("cpu", non_blocking=True)
        self._arrival = (
            torch.cuda.current_stream(numbers.device).record_event() if numbers.is_cuda else None
        )

    def read(self) -> Tensor:
        """The numbers; on a CPU the very tensor that was given."""
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._numbers
