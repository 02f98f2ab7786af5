#!/usr/bin/env bash
# Prepares WikiText-2 for training; see --help.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
bash "$here/scripts/setup.sh" >&2
PYTHONPATH=$here exec "$here/.venv/bin/python" -m scripts.data.wikitext wikitext2 "$@"
