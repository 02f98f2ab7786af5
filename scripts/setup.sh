#!/usr/bin/env bash
# Creates .venv with everything that the tests, the demo and the experiments need. Safe to run again: seconds then.
#   PYTHON=python3.11          the interpreter to build on
#   TORCH='torch==2.13.0'      another torch than the tested one, as a pip requirement; remembered until given again
# A C++ compiler is needed only where there is no wheel of fairseq: not by Python 3.11 and 3.12 on Linux for x86_64.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

venv=.venv
fail() { echo "setup: error: $*" >&2; exit 2; }
pip() { "$venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
install() { pip install --no-compile --constraint "$venv/.constraints" "$@"; }
has_compiler() { command -v c++ >/dev/null || command -v g++ >/dev/null; }
stamp() { { echo "$torch"; cat setup.py constraints.txt scripts/setup.sh; } | cksum; } # what .venv was made from
is_usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
version() { "$1" -c 'import sys; print(sys.version, sys.base_prefix)' 2>/dev/null; }
is_of_wanted_python() { [ -z "${PYTHON:-}" ] || [ "$(version "$PYTHON")" = "$(version "$venv/bin/python")" ]; }

if [ -L "$venv" ] && [ -x "$venv/bin/python" ]; then # that of another checkout, which may need other versions
  echo "setup: .venv is a link, and is used as it is"
  exit 0
fi
torch=${TORCH:-$(cat "$venv/.torch" 2>/dev/null || grep '^torch==' constraints.txt)}
if [ "$(cat "$venv/.installed" 2>/dev/null)" = "$(stamp)" ] && is_of_wanted_python &&
  "$venv/bin/python" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("torch", "fairseq"))))'; then
  echo "setup: .venv is up to date"
  exit 0
fi

python=$venv/bin/python
if [ ! -x "$python" ] || ! is_of_wanted_python; then
  python=${PYTHON:-}
  for candidate in python3.11 python3.12 python3.10 python3; do
    if [ -z "$python" ] && is_usable "$candidate"; then python=$candidate; fi
  done
  is_usable "$python" ||
    fail "found no usable Python${PYTHON:+ at PYTHON=$PYTHON}; expected 3.10 or newer with venv; set PYTHON="
fi
wanted=ve-fairseq other=fairseq-fixed compiled=''
# As in setup.py: whether there is a wheel of fairseq; otherwise it is compiled.
if ! "$python" -c 'import platform, sys
sys.exit((sys.platform, platform.machine()) != ("linux", "x86_64") or not (3, 11) <= sys.version_info < (3, 13))'; then
  wanted=fairseq-fixed other=ve-fairseq compiled=' (fairseq is compiled, a few minutes)'
  has_compiler || fail "found no C++ compiler, which fairseq needs with $("$python" --version) on $(uname -sm);" \
    "install one, or set PYTHON= to Python 3.11 or 3.12 on Linux x86_64, where none is needed"
fi
rm -f "$venv/.installed"
if [ "$python" != "$venv/bin/python" ]; then
  echo "setup: creating .venv with $("$python" --version)"
  "$python" -m venv --clear "$venv"
fi
{ grep -v '^torch==' constraints.txt; echo "$torch"; } > "$venv/.constraints"

echo "setup: 1/3 build tools and $torch"
install cython numpy setuptools wheel "$torch"
echo "setup: 2/3 this package with its tools$compiled"
# Both packages install the folder `fairseq`. The other one goes first, and this one with it, whose files that removes.
if pip show "$other" > /dev/null 2>&1; then pip uninstall --yes "$other" "$wanted"; fi
# What is compiled is built against what is already here: in an isolated build, fairseq-fixed would pull a second torch of
# several GB.
install --no-build-isolation --config-settings editable_mode=compat --editable '.[fairseq,eval,data,dev,docs]'
echo "setup: 3/3 fastBPE and eflomal, which are compiled"
if ! has_compiler || ! install --no-build-isolation fastBPE eflomal; then
  echo "setup: note: fastBPE and eflomal are missing, which need a C++ compiler and Python's headers: subword-nmt cuts" \
    "words in place of fastBPE, and agg-fairseq align cannot be used" >&2
fi
# fairseq asks for torchaudio, which it needs for speech alone. The one of a torch with CUDA cannot be loaded beside a
# torch without it, and then transformers cannot be imported either.
"$venv/bin/python" -c 'import torchaudio' 2>/dev/null || pip uninstall --yes torchaudio
echo "$torch" > "$venv/.torch"
stamp > "$venv/.installed"
echo "setup: done"
