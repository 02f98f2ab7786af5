"""The shell scripts: in a fresh clone, wherever the user is, and with any argument."""

import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT, run_command

pytestmark = pytest.mark.slow  # processes of their own

NAMES = (
    "a b", "-o", "läufe-☃", "*", "$(touch marker)", "", ";touch marker", "%s", "{a,b}", '"', "\\", "new\nline", "'",
)  # fmt: skip


@pytest.fixture
def clone(tmp_path):
    """A copy of the sources, a python3 without installed packages, and a set-up that makes an
    environment whose Python only notes how it is called."""
    root = tmp_path / "a clone"
    for name in ("scripts", "agg_fairseq"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "scripts" / "setup.sh").write_text(
        'mkdir -p "$root/.venv/bin"; echo set up; touch "$root/.venv/.installed"\n'
        'printf \'#!/bin/sh\\nprintf "%%s\\\\0" "$PYTHONPATH" "$@"\\n\' > '
        '"$root/.venv/bin/python"\n'
        'chmod +x "$root/.venv/bin/python"\n'.replace("$root", str(root))
    )
    (root / "bin").mkdir()
    (root / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (root / "bin" / "python3").chmod(0o755)
    return root


def started(clone, script, *arguments, **options):
    environment = {"PATH": f"{clone}/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **options}
    command = ["bash", clone / "scripts" / script, *arguments]
    return subprocess.run(
        command, cwd=clone.parent, env=environment, capture_output=True, text=True
    )


def test_odd_paths_are_refused_and_nothing_is_run(clone):
    """By what all preparations share."""
    for name in filter(None, NAMES):  # without a name, it would download
        result = started(clone, "text/prepare.sh", "--from", name, "--output", name)
        assert (result.returncode, result.stdout) == (2, ""), name
    assert not list(clone.parent.rglob("marker"))


def test_work_begins_with_the_set_up_and_every_argument_is_handed_on_as_it_is(clone):
    for set_up in ("set up\n", ""):
        result = started(clone, "train.sh", *NAMES, CDPATH=".:/")
        path, option, _, *arguments = result.stdout.split("\0")[:-1]
        assert (path, option, result.stderr) == (str(clone), "-m", set_up)
        assert arguments[-len(NAMES) :] == list(NAMES)
    assert not list(clone.parent.rglob("marker"))
    shutil.rmtree(clone / ".venv")
    (clone / "scripts" / "setup.sh").write_text("echo no compiler >&2; exit 2")
    result = started(clone, "train.sh", "agg-3")
    assert (result.returncode, result.stdout, result.stderr) == (2, "", "no compiler\n")


def test_scripts_are_clean():
    scripts = sorted((ROOT / "scripts").rglob("*.sh"))
    assert len(scripts) > 30
    run_command(
        "shellcheck", "--shell=bash", "--external-sources", "--source-path=SCRIPTDIR", *scripts
    )
