# Sourced by the scripts: `in_venv MODULE [ARGUMENT…]` runs a module of this repository in .venv, which is created if it is
# missing. For --help and --list any Python will do: they need nothing but the standard library.
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

in_venv() {
  local python=$root/.venv/bin/python
  if [ ! -f "$root/.venv/.installed" ]; then
    case " $* " in
      *' --help '* | *' -h '* | *' --list '*) python=$(command -v python3) ;;
      *) bash "$root/scripts/setup.sh" >&2 ;;
    esac
  fi
  # Without PYTHONSAFEPATH, files of the user's folder that are named like our modules would be run instead of them.
  PYTHONPATH=$root PYTHONSAFEPATH=1 exec "$python" -m "$@"
}
