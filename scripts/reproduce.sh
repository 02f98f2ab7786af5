#!/usr/bin/env bash
# Runs a table or figure of the papers, from download to number: see --help.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
bash "$here/scripts/setup.sh" >&2
exec "$here/.venv/bin/python" "$here/scripts/run.py" scripts.reproduction "$@"
