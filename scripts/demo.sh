#!/usr/bin/env bash
# Trains a small language model with plain likelihood, and with adaptive gradient gating without and with a fixed bias.
# The same as: bash scripts/reproduce.sh demo; see its --help for the options.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/in_venv.sh"
in_venv scripts.experiments demo "$@"
