"""Several processes of one training: torchrun, and what it starts.

    python scripts/run.py scripts.training.torchrun OPTION… scripts/run.py scripts.training.torchrun CONFIG…

The first call runs torchrun with these options, and the processes that torchrun starts run the second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run


def launch(arguments: list[str]) -> int:
    """Runs torchrun for the processes of this machine.

    Args:
        arguments: those of torchrun.

    Returns:
        Exit status: 0, or that of the process that failed first (128 + the signal, if it was killed), as its message
        is all that the user should see.
    """
    try:
        run(parse_args(arguments))
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    return 0


def place(environment: Mapping[str, str]) -> list[str]:
    """The place of a process among the others, as overrides: fairseq itself reads torchrun's variables only on GPUs."""
    return [
        f"distributed_training.distributed_world_size={environment['WORLD_SIZE']}",
        f"distributed_training.distributed_rank={environment['RANK']}",
        f"distributed_training.device_id={environment['LOCAL_RANK']}",
        "distributed_training.distributed_init_method='env://'",
        "distributed_training.distributed_no_spawn=true",
    ]


def main() -> int:
    """Runs torchrun; or, if torchrun has started this process, fairseq-hydra-train."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return launch(sys.argv[1:])
    from fairseq_cli.hydra_train import cli_main

    sys.argv += place(os.environ)
    cli_main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
