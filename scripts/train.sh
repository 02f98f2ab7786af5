#!/usr/bin/env bash
# Trains a configuration of configs/ on the GPUs there are: see --help.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
exec bash "$here/scripts/start.sh" scripts.training.train "$@"
