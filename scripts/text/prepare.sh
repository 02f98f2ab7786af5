#!/usr/bin/env bash
# Prepares the documentation that is bundled with every Python; see --help.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../in_venv.sh"
case " $* " in
  *' --tokens-of '*) in_venv scripts.data.same_tokens "${@/--tokens-of/--of}" ;;
  *) in_venv scripts.data.python_documentation "$@" ;;
esac
