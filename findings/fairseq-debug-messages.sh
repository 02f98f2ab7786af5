#!/usr/bin/env bash
# Importing fairseq turns on the debug messages of every other library.
#
# Expected: importing a library leaves the root logger as it is: level WARNING, no handler.
# Seen (ve-fairseq 0.12.3): one of the models that `import fairseq` imports calls
#   logging.basicConfig(level=logging.DEBUG). The root logger then has the level DEBUG and a handler,
#   and matplotlib alone writes more than a hundred lines for one picture. A later
#   logging.basicConfig(level=…) of the program itself has no effect.
# Why it matters: notebooks and training loops that use fairseq's data or models drown in messages;
#   the remedy is to call logging.basicConfig before the import, as fairseq-train does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 numpy==1.26.4 matplotlib==3.11.0 ve-fairseq==0.12.3
"$folder/venv/bin/python" -W ignore - 2> "$folder/messages" <<'PYTHON'
import io
import logging
import sys
from importlib.metadata import version

root = logging.getLogger()
before = root.level, len(root.handlers)
import fairseq

imported = root.level, len(root.handlers)
logging.basicConfig(level=logging.WARNING)

from matplotlib.figure import Figure

axis = Figure().subplots()
axis.set_title("a title")
axis.figure.savefig(io.BytesIO())
print("ve-fairseq", version("ve-fairseq"), "matplotlib", version("matplotlib"))
print("level and handlers of the root logger: before", before, "after", imported)
print("after logging.basicConfig(level=WARNING):", root.level)
if (before, imported, root.level) != ((30, 0), (10, 1), 10):
    sys.exit("changed: expected (30, 0), (10, 1) and 10")
PYTHON
lines=$(grep -c "^DEBUG:matplotlib" "$folder/messages" || true)
echo "debug messages of matplotlib: $lines"
[ "$lines" -gt 20 ] || { echo "changed: expected more than 20" >&2; exit 1; }
