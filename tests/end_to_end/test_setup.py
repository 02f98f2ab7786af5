"""scripts/setup.sh, with a Python that takes down what it is asked to install."""

import os
import shutil
import subprocess

import pytest

from tests.conftest import ROOT

PYTHON = """#!/usr/bin/env bash
case "$*" in
  "-m venv "*) mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/python" ;;
  *" pip "*) echo begin >> installed && sleep 0.2 && echo end >> installed ;;
esac
"""


@pytest.fixture
def copy(tmp_path):
    """A fresh copy of the repository, as far as the script needs it, with its environment yet to be made."""
    copy = tmp_path / "a copy"
    (copy / "scripts").mkdir(parents=True)
    for name in ("setup.py", "constraints.txt", "scripts/setup.sh"):
        shutil.copy(ROOT / name, copy / name)
    (copy / "python").write_text(PYTHON)
    (copy / "python").chmod(0o755)
    return copy


@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock on this machine")
def test_two_at_once_install_once(copy):
    environment = {**os.environ, "PYTHON": str(copy / "python")}
    command = ["bash", copy / "scripts" / "setup.sh"]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted((one.communicate(timeout=60)[0] for one in both), key=len)
    assert [one.returncode for one in both] == [0, 0]
    assert said[0].endswith("setup: .venv is up to date\n") and said[1].endswith("setup: done\n")
    assert (copy / "installed").read_text().split() == ["begin", "end"] * 3


def test_a_linked_environment_is_left_as_it_is(copy):
    (copy / "shared" / "bin").mkdir(parents=True)
    shutil.copy(copy / "python", copy / "shared" / "bin" / "python")
    (copy / ".venv").symlink_to(copy / "shared")
    result = subprocess.run(["bash", copy / "scripts" / "setup.sh"], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "setup: .venv is a link, and is used as it is\n")
    assert not (copy / "installed").exists()
