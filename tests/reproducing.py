"""Runs the scripts of tables as they are, in a copy of the repository whose commands are forked as
in `forking.py`."""

import json
import re
import socket
import sys
import threading

from tests.conftest import ROOT, run_command, table_cells
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
PROGRAMS = {
    "table.py", "texts.py", "train.py", "wikitext103/f2_table_9.py", "wmt14_en_de/hidden_states.py",
    "ours/fine_tuning.py", "ours/pushes_and_pulls.py", "ours/rule.py", "ours/optimizers.py",
    "ours/interventions/__init__.py",
}  # fmt: skip
"""In Python, that these scripts run."""


class Clone:
    """A copy of the repository at `folder`; `run` starts a script in it, and `ran` has the files of
    scripts/ that ran."""

    def __init__(self, folder):
        self.root, self.ran = folder, set()
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
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection:
            arguments = json.loads(connection.makefile().readline())
            called = " ".join(arguments[0])
            module = re.search(r"-m scripts\.([\w.]+)", called)
            self.ran |= {module[1].replace(".", "/") + ".py"} if module else set()
            self.ran |= {*re.findall(r"scripts/(\S+\.py)", called)}
            if "ours/interventions" in called:  # as fairseq's user_dir
                self.ran.add("ours/interventions/__init__.py")
            process = processes.Process(target=become, args=arguments)
            process.start()
            process.join()
            connection.sendall(f"{process.exitcode}\n".encode())

    def run(self, script, *arguments, check=True, cwd=None, **variables):
        self.ran.add(str(script))
        given = {name: str(value) for name, value in variables.items()}
        command = ("bash", self.root / "scripts" / script, *arguments)
        environment = {"OMP_NUM_THREADS": "1", **given}
        return run_command(*command, check=check, cwd=cwd or self.root, env=environment)


def rows(text):
    """The cells of a printed table by the first one of each line, that of the titles too."""
    return {first: others for first, *others in table_cells(text)}
