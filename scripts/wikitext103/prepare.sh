#!/usr/bin/env bash
# Prepares WikiText-103 for training; see --help.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../in_venv.sh"
in_venv scripts.data.wikitext wikitext103 "$@"
