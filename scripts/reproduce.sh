#!/usr/bin/env bash
# Runs tables and figures of the papers, and experiments of our own, from download to number: see --help.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
bash "$here/scripts/setup.sh" >&2
exec "$here/.venv/bin/python" "$here/scripts/run.py" scripts.experiments "$@"
