"""Measures how much more strongly Adam pushes the output embeddings of rare tokens than it pulls them.

A token is pulled to the contexts in which it appears, and pushed away from all others. Adam divides both by √v, which
falls while a token is away, so that pushes become too strong where β₂ is too small for the token's frequency. From each
checkpoint, batches of the training split are taken as updates: pushes/pulls is the ratio of the movements along the
mean feature that Adam makes of pushes and of pulls, divided by the same ratio in the gradients; 1 is without bias.
Beside it stands 1/(1−x), which follows from β₂ and N, the mean number of updates per occurrence in the group, while the
pushes are small (docs/which-cure.md).

The checkpoints are of language models of fairseq-train that were trained by plain likelihood with adam or
embedding_adam, in float32, on one worker, and saved with the state of the optimizer.

    agg-fairseq push-pull runs/mle/checkpoint_last.pt --data data-bin/wikitext-2
"""

import argparse

from ..checkpoints.fairseq_checkpoint import Checkpoint, checkpoint_file
from ..evaluation import push_pull
from ..names import unique_names
from .options import add_inputs, add_options, select
from .outputs import print_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_inputs(parser, "MODEL", "checkpoints of fairseq-train with the state of the optimizer")
    add_options(parser, "--data", required=True)
    parser.add_argument(
        "--batches", type=int, default=50, metavar="N", help="batches of the training split, at most an epoch"
    )
    add_options(parser, "--groups", "--json")


def run(arguments: argparse.Namespace) -> None:
    files = [checkpoint_file(path) for path in arguments.inputs]
    models = {name: Checkpoint(file) for name, file in zip(unique_names(files, arguments.name), files, strict=True)}
    result = push_pull(models, **select(arguments, "data", "batches", "groups"))
    print_result(result, arguments.json, transposed=True)
