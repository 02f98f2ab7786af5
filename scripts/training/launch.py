"""torchrun, which ends as the process that failed: with its status, and without a traceback after its message."""

from __future__ import annotations

import sys

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run


def main(arguments: list[str]) -> int:
    """Runs the processes of this machine.

    Args:
        arguments: those of torchrun.

    Returns:
        Exit status: 0; that of the process that failed first, and of one that was killed, 128 + the signal.
    """
    try:
        run(parse_args(arguments))
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
