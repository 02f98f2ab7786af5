# Sourced by the scripts: `in_venv MODULE [ARGUMENT…]` runs a module of this repository in .venv, which is created if it is
# missing. For --help and --list any Python will do: they need nothing but the standard library.
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

ensure_venv() { [ -f "$root/.venv/.installed" ] || bash "$root/scripts/setup.sh" >&2; }

in_venv() {
  local python=$root/.venv/bin/python
  case " $* " in
    *' --help '* | *' -h '* | *' --list '*) [ -f "$root/.venv/.installed" ] || python=$(command -v python3) ;;
    *) ensure_venv ;;
  esac
  # Without PYTHONSAFEPATH, files of the user's folder that are named like our modules would be run instead of them.
  PYTHONPATH=$root PYTHONSAFEPATH=1 exec "$python" -m "$@"
}
