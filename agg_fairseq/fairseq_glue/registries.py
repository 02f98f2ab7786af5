"""What this package adds to fairseq's registries: criterions, optimizers, and options."""

from collections.abc import Callable
from dataclasses import field
from typing import Any


def option(default: Any, text: str) -> Any:
    """A field of a dataclass of options: its default, and its help on the command line."""
    return field(default=default, metadata={"help": text})


def register_once(registry: dict[str, type], register: Callable[..., Any], name: str, dataclass: type) -> Any:
    """A decorator such as fairseq's `register_criterion`, but a second import of the same class is no error.

    The folder that `--user-dir` names may be a link, and so be imported under another name beside the installed
    package. The first registration stands. (For models and tasks, fairseq does the same.) `name` of the class is set.
    """

    def registered(cls: type) -> type:
        known = registry.get(name)
        if known is not None and known.__name__ == cls.__name__:
            return known
        cls.name = name
        return register(name, dataclass=dataclass)(cls)

    return registered
