"""scripts/setup.sh, with a Python that takes down what it is asked to install."""

import os
import shutil

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
