#!/usr/bin/env bash
# Runs tables and figures of the papers, and experiments of our own, from download to number: see --help.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/in_venv.sh"
in_venv scripts.experiments "$@"
