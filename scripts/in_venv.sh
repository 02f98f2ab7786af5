# Sourced by the scripts: `in_venv MODULE [ARGUMENT…]` runs a module of this repository in .venv, which is created if it is
# missing. With --help, a script prints the comments at its beginning, and those of the file `help`.
# shellcheck disable=SC2154 # `help` is a variable of the script
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

say() { echo "$(basename -- "$0" .sh): $*" >&2; }
fail() { say "error: $*"; exit 2; }

case " $* " in *' --help '* | *' -h '*)
  awk 'FNR == 1 { on = 1 } !/^#/ { on = 0 } on && !/^#(!| shellcheck)/ { print substr($0, 3) }' "$0" ${help:+"$help"}
  exit ;;
esac

ensure_venv() { [ -f "$root/.venv/.installed" ] || bash "$root/scripts/setup.sh" >&2; }

in_venv() {
  ensure_venv
  # Without PYTHONSAFEPATH, files of the user's folder that are named like our modules would be run instead of them.
  PYTHONPATH=$root PYTHONSAFEPATH=1 exec "$root/.venv/bin/python" -m "$@"
}
