"""Runs scripts/reproduce.sh with models of a few updates."""

import contextlib
import io
import os
import sys
from subprocess import CompletedProcess

from scripts.command import run
from scripts.experiments import __main__ as experiments
from tests.conftest import ROOT, run_command

SCRIPT = ROOT / "scripts" / "reproduce.sh"
SMALL = (
    "optimization.max_update=6", "checkpoint.save_interval_updates=1", "common.log_interval=1", "dataset.num_workers=0",
    "model.decoder_embed_dim=16", "model.decoder_ffn_embed_dim=16",
)  # fmt: skip
LM = (*SMALL, "model.decoder_layers=1", "model.decoder_input_dim=16", "model.decoder_output_dim=16")
MT = (*SMALL, "model.encoder_embed_dim=16", "model.encoder_ffn_embed_dim=16")


def reproduce(*arguments, check=True, cwd=ROOT, timeout=300):
    return run_command("bash", SCRIPT, *arguments, check=check, cwd=cwd, env={"OMP_NUM_THREADS": "1"}, timeout=timeout)


def run_entry(*arguments, check=True, cwd=ROOT, timeout=300):
    """What the script starts, without its set-up, which takes seconds."""
    command = ("python", ROOT / "scripts" / "run.py", "scripts.experiments")
    return run_command(*command, *arguments, check=check, cwd=cwd, env={"OMP_NUM_THREADS": "1"}, timeout=timeout)


def run_entry_here(*arguments, cwd=ROOT):
    """The same in this process, for what ends before anything is trained: starting Python and torch takes seconds."""
    out, err, argv, before = io.StringIO(), io.StringIO(), sys.argv, os.getcwd()
    sys.argv = ["reproduce", *map(str, arguments)]
    os.chdir(cwd)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run("reproduce", experiments.main)
    finally:
        os.chdir(before)
        sys.argv = argv
    return CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def rows(text):
    return {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    }
