"""What this package adds to fairseq's registries: criterions, optimizers, and options."""

from collections.abc import Callable
from dataclasses import field
from typing import Any


def option(default: Any, text: str) -> Any:
    """A field of a dataclass of options: its default, and its help on the command line."""
    return field(default=default, metadata={"help": text})


def named(register: Callable[..., Any], name: str, dataclass: type) -> Callable[[type], type]:
    """A decorator such as fairseq's `register_criterion(name, dataclass=…)`, which also sets `name` of the class."""

    def decorate(cls: type) -> type:
        cls.name = name
        return register(name, dataclass=dataclass)(cls)

    return decorate
