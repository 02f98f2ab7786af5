"""scripts/setup.sh, with a Python that installs nothing."""

import shutil

from tests.conftest import ROOT, run_command

PYTHON = """#!/usr/bin/env bash
if [ "$2" = venv ]; then mkdir -p "${@: -1}/bin" && cp "$0" "${@: -1}/bin/python"; fi
"""


def test_a_second_run_installs_nothing(tmp_path):
    """In a copy of what the script needs of the repository."""
    copy = tmp_path / "a copy"
    (copy / "scripts").mkdir(parents=True)
    for name in ("setup.py", "constraints.txt", "scripts/setup.sh"):
        shutil.copy(ROOT / name, copy / name)
    (copy / "python").write_text(PYTHON)
    (copy / "python").chmod(0o755)
    environment = {"PYTHON": str(copy / "python")}
    for said in ("done", ".venv is up to date"):
        installed = run_command("bash", copy / "scripts" / "setup.sh", env=environment).stdout
        assert installed.endswith(f"setup: {said}\n")
