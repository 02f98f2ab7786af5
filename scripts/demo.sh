#!/usr/bin/env bash
# The demo: see scripts/ours/demo.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/ours/demo.sh" "$@"
