#!/usr/bin/env bash
# Prepares WMT14 English-German, or any parallel corpus of these two languages, for training; see --help.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
bash "$here/scripts/setup.sh" >&2
exec "$here/.venv/bin/python" "$here/scripts/run.py" scripts.data.translation "$@"
