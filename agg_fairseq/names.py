"""Names of the things that a table compares."""

from collections.abc import Sequence
from pathlib import Path

from .errors import UserError

HUMAN = "human"  # the row of the human texts
UNIGRAM = "unigram"  # the row of a model that always predicts the training frequencies

GROUPS = ("frequent", "medium", "rare")
MASS_GROUPS = ("frequent", "medium", "rare", "very rare")
OCCURRENCE_GROUPS = ("100 or more", "1 to 99", "absent")
LISTED_GROUPS = ("other", "listed")
UNSEEN = "unseen"
"""A further group beside `GROUPS` or `MASS_GROUPS`: tokens that never occur as a target in
training, such as those of the source side alone in a joined dictionary."""
GROUPINGS = {"types": "30%/50%/20%-of-types", "frequency": "1e-05/1e-06-of-tokens"}
"""Ways to group tokens by frequency, as signatures say them."""
GROUP_MEANINGS = {
    "types": "the first 30%, the next 50% and the last 20% of the tokens that occur, ordered by "
    "training frequency",
    "frequency": "the tokens that make up at least 1e-5, at least 1e-6 and less than 1e-6 of the "
    "training text",
}


def unique_names(
    paths: Sequence[str | Path], names: Sequence[str] | None, default: str = "folder"
) -> list[str]:
    """Unique names of files or folders: those that the user gave, if any.

    By `default` a path is named after the "folder" that it lies in, by its own "name", or by its
    "stem". Where two would be the same, all are named by their paths.
    """
    if not names:
        names = []
        for path in map(Path, paths):
            real = path.resolve()
            kinds = {"folder": real.parent.name, "name": real.name, "stem": path.stem}
            names.append(kinds[default])
        if len(set(names)) < len(names):
            names = list(map(str, paths))
    if len(names) != len(paths) or len(set(names)) < len(names):
        raise UserError(
            f"--name: found {', '.join(names)}; expected a name for each of "
            f"{len(paths)} files, each once"
        )
    return list(names)
