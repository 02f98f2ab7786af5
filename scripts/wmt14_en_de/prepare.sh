#!/usr/bin/env bash
# Prepares WMT14 English-German, or any parallel corpus of these two languages, for training; see --help.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../in_venv.sh"
in_venv scripts.data.translation "$@"
