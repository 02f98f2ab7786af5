#!/usr/bin/env bash
# Trains a configuration of configs/ on the GPUs there are: see --help.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/in_venv.sh"
in_venv scripts.training.train "$@"
