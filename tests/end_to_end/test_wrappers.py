"""The scripts that start a Python module: wherever the user is, and whatever the files there are called."""

import sys

import pytest

from tests.conftest import ROOT, run_command

pytestmark = pytest.mark.slow  # command lines: processes of their own


@pytest.fixture
def folder(tmp_path):
    """One with files that are named like modules which the scripts import."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/__init__.py", "regex.py", "argparse.py"):
        (tmp_path / name).write_text("raise SystemExit('the user’s own file was run')")
    return tmp_path


@pytest.mark.parametrize("script", ["reproduce.sh", "wikitext2/prepare.sh", "wmt14_en_de/prepare.sh"])
def test_from_any_folder(folder, script):
    assert run_command("bash", ROOT / "scripts" / script, "--help", cwd=folder).stdout.startswith("usage: ")


def test_a_module_gets_its_arguments_and_ends_with_its_status(folder):
    command = (sys.executable, ROOT / "scripts" / "run.py", "scripts.training.train", "nothing")
    result = run_command(*command, cwd=folder, check=False)
    assert result.returncode == 2 and result.stderr.startswith("train: error: found no configuration nothing;")
