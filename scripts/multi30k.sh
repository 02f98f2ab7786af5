#!/usr/bin/env bash
# Trains one small translation model with each objective of the translation tables, with a log-unigram bias, and with
# the factorized output layer.
# The same as: bash scripts/reproduce.sh multi30k; see its --help for the options.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
exec bash "$here/reproduce.sh" multi30k "$@"
