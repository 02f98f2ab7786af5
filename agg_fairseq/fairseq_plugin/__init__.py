"""All that reaches into the inside of fairseq and torch, and the complete list of what is replaced
or wrapped.

`agg_fairseq.register` adds names to fairseq's registries, and one class to a list of torch's. It replaces one method of
fairseq's trainer, which then does what it did before unless a model or an optimizer of this package is chosen. All else
happens when a criterion of this package is built (C) or trains (T), when a model with an output layer of this package
is built (M).

    what                                where             when  for how long            why
    registries of criterions, models,   criterions/,      import                        --criterion agg,
    architectures, optimizers           models/, optimizers                             --arch transformer_lm_f2,
    (added to)                                                                          --optimizer coupled_adam
    torch.serialization: safe globals   ../checkpoints/    import, each opening of a     resume and generation from
    (argparse.Namespace added)                            checkpoint                    checkpoints with a Namespace
    Trainer._build_optimizer            trainer           import        the process     a model is completed, an
                                                                                        optimizer learns which it trains
    task.get_batch_iterator             criterions/base   C     the task instance       length of an epoch; a resume
                                                                                        sees the same batches
    task.train_step                     criterions/base   C     the task instance       update number, dummy batches,
                                                                                        buffers on the model's device
    task.optimizer_step                 criterions/base   C     the task instance       counts are complete; frozen
                                                                                        rows are put back
    task.get_checkpoint_dict,           criterions/base   C     the task instance       the criterion's state in
    task.set_checkpoint_dict (added)                                                    checkpoints
    checkpoint_utils.PathManager        atomic_saving     T     the process             a killed training leaves no
                                                                                        truncated checkpoint
    decoder.output_layer                output_layer      T     a call of forward       features without the logits
    atexit: destroy_process_group       criterions/base   C     trainings over gloo     torch may abort the process
    gradient hook on W; rows of W, its  freeze_rare,      T     while rows are frozen   rows that do not move at all
    float32 copies                      output_layer
    decoder.output_projection,          models/           M     the decoder instance    fairseq's builders name the
    decoder.__class__ (F²)                                                              class of their decoder inside

A fairseq that differs from the tested version ends the first update in a TypeError if it calls
`train_step` or `optimizer_step` differently. Where it does not call something at all, what the line
of the table is for is missing, and a training is otherwise as before: `agg-fairseq doctor` reports
a version that does not save the criterion's state.
"""

from dataclasses import field
from typing import Any


def option(default: Any, text: str) -> Any:
    """A field of a dataclass of options: its default, and its help on the command line."""
    return field(default=default, metadata={"help": text})
