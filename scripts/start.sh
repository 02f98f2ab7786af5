#!/usr/bin/env bash
# Starts a program of this folder: start.sh MODULE [ARGUMENT…]. Any Python reads the arguments; only where there is work
# to do, the program sets up .venv and goes on there (command.py). So --help and --dry-run set nothing up.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
for python in "$here/.venv/bin/python" ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.10 python3; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    AGG_SET_UP=1 exec "$python" "$here/scripts/run.py" "$@"
  fi
done
echo "error: found no Python${PYTHON:+ at PYTHON=$PYTHON}; expected 3.10 or newer; set PYTHON=" >&2
exit 2
