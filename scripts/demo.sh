#!/usr/bin/env bash
# Trains a small language model with plain likelihood, with adaptive gradient gating, and with plain likelihood and a
# larger β₂ of Adam.
# The same as: bash scripts/reproduce.sh demo --jobs 2; see its --help for the options.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/in_venv.sh"
in_venv scripts.experiments demo --jobs 2 "$@"
