"""All that reaches into the inside of fairseq and torch. This is the complete list of what is
replaced or wrapped.

On import (`agg_fairseq.register`), for the process:

- criterions/, models/, optimizers: names are added to fairseq's registries (`--criterion agg`,
  `--arch transformer_lm_f2`, `--optimizer coupled_adam`);
- ../checkpoints/: argparse.Namespace and NumPy's plain values are added to torch's safe globals,
  for resume and generation;
- trainer: `Trainer._build_optimizer` completes a model of this package, and tells an optimizer of
  this package which model it trains. Otherwise it does what it did before.

When a criterion of this package is built (hooks):

- `task.get_batch_iterator`: the length of an epoch; the same batches after a resume;
- `task.train_step`: update number, dummy batches;
- `task.optimizer_step`: counts are complete; frozen rows are put back;
- `task.get_checkpoint_dict`, `task.set_checkpoint_dict` (added): the criterion's state;
- atexit, for trainings over gloo: `destroy_process_group`, without which torch may abort.

While a criterion of this package trains:

- atomic_saving: `checkpoint_utils.PathManager`, for the process: a killed training leaves no
  truncated checkpoint;
- features: `decoder.output_layer`, for a call of forward: the loss in place of the logits; the logits
  of a few positions, in the first batch and while a command scores a model;
- freeze_rare, output_layer: a gradient hook on W; rows of W and its float32 copies.

When a model with an output layer of this package is built (models/): `decoder.output_projection`
of the instance, and `decoder.__class__` for F², since fairseq's builders name that class inside.

A fairseq that calls `train_step` or `optimizer_step` differently ends the first update in a
TypeError. Where it does not call something at all, a training is otherwise as before:
`agg-fairseq doctor` reports a version that does not save the criterion's state.
"""

from dataclasses import field
from typing import Any


def option(default: Any, text: str) -> Any:
    """A field of a dataclass of options: its default, and its help on the command line."""
    return field(default=default, metadata={"help": text})
