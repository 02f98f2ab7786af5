#!/usr/bin/env bash
# Prepares WikiText-2 for training; see --help.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
exec bash "$here/scripts/start.sh" scripts.data.wikitext wikitext2 "$@"
