"""The device that a command runs on."""

from __future__ import annotations

import torch

from ..errors import UserError


def find_device(name: str | None) -> torch.device:
    """The device of that name, tried out; by default a GPU if there is one.

    Raises:
        UserError: there is no such device here.
    """
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(
            f"--device: found {name!r}, which this machine lacks; expected cpu, or cuda with a GPU"
        ) from error
    return device
