#!/usr/bin/env bash
# Trains a configuration of configs/ on the GPUs there are: see --help.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
bash "$here/scripts/setup.sh" >&2
exec "$here/.venv/bin/python" "$here/scripts/run.py" scripts.training.train "$@"
