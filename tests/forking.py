"""Command lines of fairseq and of this package as real processes, forked from one that has imported fairseq alone.

Importing it would take most of the time. --user-dir and the commands import the package as they do for a user.
"""

import importlib
import multiprocessing
import os
import subprocess
import sys
import tempfile

ENTRY_POINTS = {
    **{f"fairseq-{name}": (f"fairseq_cli.{name.replace('-', '_')}", "cli_main")
       for name in ("train", "hydra-train", "validate", "generate", "eval-lm", "preprocess")},
    "agg-fairseq": ("agg_fairseq.cli.main", "main"),
}  # fmt: skip

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [*(module for module, _ in ENTRY_POINTS.values() if module.startswith("fairseq_cli")), "torch._dynamo"]
)  # Adam asks for the last


def run_forked(command, *, cwd, env, timeout):
    """What `subprocess.run(command, capture_output=True, text=True)` returns; the command is one of `ENTRY_POINTS`."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [os.path.join(folder, name) for name in ("stdout", "stderr")]
        process = processes.Process(target=_run, args=(command, str(cwd), dict(env), outputs))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout)
        texts = []
        for path in outputs:
            with open(path, encoding="utf-8", errors="backslashreplace") as file:
                texts.append(file.read())
        return subprocess.CompletedProcess(command, process.exitcode, *texts)


def _run(command, cwd, env, outputs):
    for descriptor, path in enumerate(outputs, start=1):
        with open(path, "wb") as file:
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = list(command)
    module, function = ENTRY_POINTS[command[0]]
    sys.exit(getattr(importlib.import_module(module), function)())
