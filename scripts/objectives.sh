#!/usr/bin/env bash
# Trains one small language model with likelihood, AGG and its variants, freezing, AGPS, CosReg and unlikelihood.
# The same as: bash scripts/reproduce.sh objectives; see its --help for the options.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
exec bash "$here/reproduce.sh" objectives "$@"
