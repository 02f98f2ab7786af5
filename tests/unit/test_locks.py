import os
import signal
import subprocess
import sys

from tests.conftest import ROOT

RUN = """
import pathlib, subprocess, sys
from scripts.data.files import only_run_in

with only_run_in(pathlib.Path(sys.argv[1])):
    if sys.argv[2:]:
        left = subprocess.Popen(["sleep", "1800"], close_fds=False, stdout=subprocess.DEVNULL)
        print(left.pid, flush=True)
        left.wait()
    print("alone", flush=True)
"""


def started(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", RUN, folder, *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_run_waits_for_what_is_left_of_one_that_was_killed(tmp_path):
    folder = tmp_path / "made"
    with started(folder, "with a child") as first:
        left = int(first.stdout.readline())
        first.kill()
        first.wait()
        with started(folder) as second:
            assert second.stderr.readline() == f"waiting for another run in {folder} to end\n"
            assert second.poll() is None
            os.kill(left, signal.SIGKILL)
            assert second.communicate(timeout=1800) == ("alone\n", "")
