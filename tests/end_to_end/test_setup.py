"""scripts/setup.sh, with a Python that takes down what it is asked to install."""

import os
import shutil
import subprocess

import pytest

from tests.conftest import ROOT, run_command

PYTHON = """#!/usr/bin/env bash
case "$*" in
  "-m venv "*) mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/python" ;;
  *" pip "*) echo "$*" >> installed ;;
  "-c import platform"*) exit "${NO_WHEEL:-0}" ;;
esac
"""


@pytest.fixture
def copy(tmp_path):
    """A fresh copy of the repository, as far as the script needs it, with its environment yet to be
    made."""
    copy = tmp_path / "a copy"
    (copy / "scripts").mkdir(parents=True)
    for name in ("setup.py", "constraints.txt", "scripts/setup.sh"):
        shutil.copy(ROOT / name, copy / name)
    (copy / "python").write_text(PYTHON)
    (copy / "python").chmod(0o755)
    return copy


def test_a_second_run_installs_nothing(copy):
    environment = {**os.environ, "PYTHON": str(copy / "python")}
    for said in ("done", ".venv is up to date"):
        installed = run_command("bash", copy / "scripts" / "setup.sh", env=environment).stdout
        assert installed.endswith(f"setup: {said}\n")


@pytest.mark.parametrize("no_wheel", ["", "1"])
def test_without_a_compiler(copy, no_wheel):
    (copy / "bin").mkdir()
    for name in "bash cat cksum cp dirname env grep mkdir mktemp rm uname".split():
        if found := shutil.which(name):
            (copy / "bin" / name).symlink_to(found)
    environment = {"PATH": str(copy / "bin"), "PYTHON": str(copy / "python"), "NO_WHEEL": no_wheel}
    command = [shutil.which("bash"), copy / "scripts" / "setup.sh"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800)
    if no_wheel:
        assert result.returncode == 2
        assert result.stderr.startswith("setup: error: found no C++ compiler")
        assert not (copy / "installed").exists() and not (copy / ".venv").exists()
        return
    assert result.returncode == 0
    assert "setup: note: fastBPE and eflomal are missing" in result.stderr
    installed = (copy / "installed").read_text()
    assert "eflomal" not in installed and "fastBPE" not in installed
    # Both packages have the same files, so that the other one goes before this one is installed.
    removed = installed.index("uninstall --yes fairseq-fixed")
    assert 0 < removed < installed.index("--editable .[fairseq,")
