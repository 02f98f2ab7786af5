#!/usr/bin/env bash
# Prepares WikiText-2 for training; see --help.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
bash "$here/scripts/setup.sh" >&2
exec "$here/.venv/bin/python" "$here/scripts/run.py" scripts.data.wikitext wikitext2 "$@"
