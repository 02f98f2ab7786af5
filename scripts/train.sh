#!/usr/bin/env bash
# usage: bash scripts/train.sh CONFIG [KEY=VALUE…] [--gpus N] [--dry-run]
#
# Trains a configuration on the GPUs of this machine, or of several that share the folder, each of which runs this once with
# torchrun's WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT; with the tokens per update that it asks for:
#   bash scripts/train.sh configs/wikitext103/agg task.data=data/wikitext103-gpt2/data-bin checkpoint.save_dir=runs/agg
# CONFIG is a file of configs/, with or without .yaml, or any other configuration for fairseq-hydra-train. KEY=VALUE
# replaces one of its options, or adds one of fairseq's: size=agg-small, optimization.max_update=100, common.fp16=true.
# To resume an interrupted training from its last checkpoint, run the same command again; a folder with a training of
# other settings is refused, and a finished training is left alone.
#   --gpus N     number of GPUs of a machine (default: all visible ones; at size=tiny, which is for a CPU, none)
#   --dry-run    print the command, and start nothing
# max_tokens (of a batch) x update_freq are the tokens of an update, on any number of GPUs: on several, each reads fewer
# batches, then smaller ones. A number of GPUs that would change the tokens of an update by more than 2% is refused, and for
# agps, whose gates depend on the batch, also one that would change max_tokens. What else may differ is the order of sums,
# the padding of translations, dropout, and agg_count_current_batch.
# common.bf16=true trains in bfloat16, in place of common.fp16. (fairseq's own --bf16 implies a TPU, and fails on a GPU.)
set -euo pipefail
[ $# -gt 0 ] || set -- --help
. "$(dirname -- "${BASH_SOURCE[0]}")/in_venv.sh"
in_venv scripts.train "$@"
