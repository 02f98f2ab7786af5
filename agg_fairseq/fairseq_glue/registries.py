"""Names that this package adds to fairseq's registries of criterions and optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def register_once(
    registry: dict[str, type], register: Callable[..., Callable[[type], type]], name: str, dataclass: type
) -> Callable[[type], Any]:
    """A decorator such as `fairseq.criterions.register_criterion`, but a second import of the same class is no error.

    The folder that `--user-dir` names may be a link, and so be imported under another name beside the installed
    package. The first registration stands. (For models and tasks, fairseq does the same.)

    Args:
        registry: fairseq's classes by name.
        register: the function of fairseq that adds to it.
        name: the name to register a class under.
        dataclass: of its options.

    Raises:
        ValueError: the name is taken by another class.
    """

    def registered(cls: type) -> type:
        known = registry.get(name)
        if known is not None and known.__name__ == cls.__name__:
            return known
        return register(name, dataclass=dataclass)(cls)

    return registered
