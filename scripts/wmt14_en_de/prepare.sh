#!/usr/bin/env bash
# Prepares WMT14 English-German, or any parallel corpus of these two languages, for training; see --help.
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
exec bash "$here/scripts/start.sh" scripts.data.translation "$@"
