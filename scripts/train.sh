#!/usr/bin/env bash
# Trains a configuration of configs/ on the GPUs there are: see --help.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
bash "$here/scripts/setup.sh" >&2
PYTHONPATH=$here exec "$here/.venv/bin/python" -m scripts.training.train "$@"
