#!/usr/bin/env bash
# Trains a small language model with plain likelihood and with adaptive gradient gating, and compares them.
# The same as: bash scripts/reproduce.sh demo; see its --help for the options.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
exec bash "$here/reproduce.sh" demo "$@"
