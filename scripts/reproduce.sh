#!/usr/bin/env bash
# Runs tables and figures of the papers, and experiments of our own, from download to number: see --help.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
exec bash "$here/scripts/start.sh" scripts.experiments "$@"
