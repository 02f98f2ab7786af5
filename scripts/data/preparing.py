"""How every prepared folder is made: by one run at a time, stage by stage, its manifest last."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from .alone import alone
from .manifest import is_complete
from .stages import made_again_if_lost, stage


def prepare_folder(
    program: str,
    folder: Path,
    settings: Callable[[], Mapping[str, object]],
    stages: Mapping[str, Callable[[Path], object]],
    finish: Callable[[], None],
) -> None:
    """Makes what is missing of a prepared folder.

    Args:
        program: what its messages begin with.
        folder: that is made.
        settings: reads all that it depends on, as JSON can say it, once no other run is at work.
        stages: by the names of its folders, in their order; each fills the folder it is given.
        finish: writes the manifest.

    Raises:
        UserError: it is of other settings; or a stage failed, from which the next run goes on.
    """
    with alone(folder), made_again_if_lost():
        wanted = settings()
        if is_complete(folder, wanted):
            print(f"{program}: {folder} is complete")
            return
        for name, make in stages.items():
            print(f"{program}: {name}", file=sys.stderr)
            stage(folder / name, wanted, make)
        finish()
