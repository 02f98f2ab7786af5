"""One process of a training by several, as torchrun starts it: fairseq-hydra-train with its place among them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


def place(environment: Mapping[str, str]) -> list[str]:
    """What torchrun says about a process, as overrides; fairseq reads it by itself only where there are GPUs."""
    return [
        f"distributed_training.distributed_world_size={environment['WORLD_SIZE']}",
        f"distributed_training.distributed_rank={environment['RANK']}",
        f"distributed_training.device_id={environment['LOCAL_RANK']}",
        "distributed_training.distributed_init_method='env://'",
        "distributed_training.distributed_no_spawn=true",
    ]


def main() -> None:
    """Trains."""
    from fairseq_cli.hydra_train import cli_main

    sys.argv += place(os.environ)
    cli_main()


if __name__ == "__main__":
    main()
