"""The command line of a training, written from its checkpoint."""

import contextlib
import io
import shlex

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from ..checkpoints import Checkpoint
from ..errors import flag
from . import criterions, models, optimizers  # noqa: F401 — importing registers

NAMES = {
    "task": "--task", "model": "--arch", "criterion": "--criterion", "optimizer": "--optimizer",
    "lr_scheduler": "--lr-scheduler",
}  # fmt: skip


def training_command(checkpoint: Checkpoint) -> str | None:
    """The `fairseq-train` command with the options that differ from fairseq's defaults for this
    architecture; None for an architecture or a task that this process does not know."""
    data = str(checkpoint.options("task").get("data"))
    chosen = []
    for section, option in NAMES.items():
        found = checkpoint.options(section)
        chosen += [option, str(found.get("_name") or found.get("arch"))]
    # without it, fairseq cannot parse polynomial_decay
    if (total := checkpoint.options("lr_scheduler").get("total_num_update")) is not None:
        chosen += ["--total-num-update", str(total)]
    parser = options.get_training_parser()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            arguments = options.parse_args_and_arch(parser, [data, *chosen])
            cfg = OmegaConf.to_container(convert_namespace_to_omegaconf(arguments), resolve=True)
    except SystemExit:  # argparse, of a name that is not registered
        return None
    words, seen = ["fairseq-train", data, *chosen], {"_name", "data", "user_dir"}
    for section, defaults in cfg.items():
        if not isinstance(defaults, dict):
            defaults = vars(defaults) if section == "model" and defaults else {}
        used = checkpoint.options(section)
        for key, default in defaults.items():
            value = used.get(key)
            if key in seen or value is None or value is False or str(value) == str(default):
                continue
            seen.add(key)  # the criterion repeats options of other sections
            words.append(flag(key))
            if value is not True:
                is_list = isinstance(value, list | tuple)
                words.append(",".join(map(str, value)) if is_list else str(value))
    return shlex.join(words) + ' --user-dir "$(agg-fairseq user-dir)"'
