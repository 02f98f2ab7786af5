"""Runs the scripts of tables as they are, in a copy of the repository whose commands are forked as
in `forking.py`."""

import json
import os
import socket
import subprocess
import sys
import threading

from tests.commands import table
from tests.conftest import ROOT
from tests.forking import ENTRY_POINTS, become, processes

CLIENT = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    streams = [f"/proc/{{os.getpid()}}/fd/{{number}}" for number in range(3)]
    server.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ), streams]).encode() + b"\\n")
    sys.exit(int(server.makefile().readline()))
"""
SMALL = (
    "optimization.max_update=4", "checkpoint.save_interval_updates=2", "common.log_interval=1", "dataset.num_workers=0",
    "model.decoder_embed_dim=16", "model.decoder_ffn_embed_dim=16",
)  # fmt: skip
LM = (
    *SMALL, "dataset.max_tokens=256", "model.decoder_layers=1", "model.decoder_input_dim=16",
    "model.decoder_output_dim=16",
)  # fmt: skip
MT = (
    *SMALL, "optimization.max_update=6", "checkpoint.save_interval_updates=1", "dataset.max_tokens=100",
    "model.encoder_layers=1", "model.decoder_layers=1", "model.encoder_embed_dim=16", "model.encoder_ffn_embed_dim=16",
    "model.max_target_positions=30",
)  # fmt: skip

FOLDERS = ("wikitext103", "wmt14_en_de", "wikitext2", "ours")
SCRIPTS = [
    str(path.relative_to(ROOT / "scripts"))
    for folder in FOLDERS
    for path in sorted((ROOT / "scripts" / folder).glob("*.sh"))
    if path.name != "prepare.sh"
]
"""Of all tables, as reproduce.sh lists them."""


class Clone:
    """A copy of the repository at `folder`; `run` starts a script in it."""

    def __init__(self, folder):
        self.root = folder
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / ".venv" / ".installed").touch()
        for name in ("scripts", "configs", "agg_fairseq", "examples"):
            (folder / name).symlink_to(ROOT / name)
        self.server = socket.socket(socket.AF_UNIX)
        address = str(folder / "socket")
        self.server.bind(address)
        self.server.listen(64)
        for name in (*ENTRY_POINTS, "python"):
            file = folder / ".venv" / "bin" / name
            file.write_text(CLIENT.format(python=sys.executable, address=address))
            file.chmod(0o755)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            connection, _ = self.server.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()

    def run(self, script, *arguments, check=True, cwd=None, **variables):
        given = {name: str(value) for name, value in variables.items()}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **given}
        result = subprocess.run(
            ["bash", str(self.root / "scripts" / script), *map(str, arguments)],
            cwd=cwd or self.root, env=environment, capture_output=True, text=True, timeout=1800,
        )  # fmt: skip
        if check:
            assert result.returncode == 0, f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
        return result


def _answer(connection):
    with connection:
        process = processes.Process(
            target=become, args=json.loads(connection.makefile().readline())
        )
        process.start()
        process.join()
        connection.sendall(f"{process.exitcode}\n".encode())


def rows(text):
    """The cells of a printed table by the first one of each line, that of the titles too."""
    header, body = table(text)
    return {row[0]: row[1:] for row in (header, *body)}
