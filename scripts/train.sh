#!/usr/bin/env bash
# usage: bash scripts/train.sh CONFIG [KEY=VALUE…] [--gpus N] [--dry-run]
#
# Trains a configuration on the GPUs of this machine, with the tokens per update that it asks for:
#   bash scripts/train.sh configs/wikitext103/agg task.data=data/wikitext103-gpt2/data-bin checkpoint.save_dir=runs/agg
# CONFIG is a file of configs/, with or without .yaml, or any other configuration for fairseq-hydra-train. KEY=VALUE
# replaces one of its options, or adds one of fairseq's: size=agg-small, optimization.max_update=100, common.fp16=true.
# To resume an interrupted training from its last checkpoint, run the same command again; a folder with a training of
# other settings is refused, and a finished training is left alone.
#   --gpus N     number of GPUs (default: all visible ones; at size=tiny, which is for a CPU, none)
#   --dry-run    print the command, and start nothing
# A configuration is written for one GPU. On several GPUs, each reads fewer tokens per update, so that the training is
# the same: the product max_tokens (of a batch) x update_freq (batches per update) x GPUs does not change. If you set
# dataset.max_tokens or optimization.update_freq, this value applies to each GPU.
set -euo pipefail
[ $# -gt 0 ] || set -- --help
. "$(dirname -- "${BASH_SOURCE[0]}")/in_venv.sh"
in_venv scripts.train "$@"
