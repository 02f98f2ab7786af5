#!/usr/bin/env bash
# Trains one small language model with the ordinary softmax and with the factorized output layer, and compares them.
# The same as: bash scripts/reproduce.sh f2; see its --help for the options.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
exec bash "$here/reproduce.sh" f2 "$@"
