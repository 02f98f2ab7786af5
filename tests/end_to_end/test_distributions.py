"""The wheel and the source distribution: what they hold, and that the wheel works as a --user-dir."""

import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tests.conftest import ROOT

BUILD = "from setuptools.build_meta import *; build_sdist('dist'); build_wheel('dist')"
USE = """
import sys
from argparse import Namespace
from fairseq import utils
utils.import_user_module(Namespace(user_dir=sys.argv[1]))
from fairseq.criterions import CRITERION_REGISTRY
print(sys.modules["agg_fairseq"].__file__, "agg" in CRITERION_REGISTRY)
"""


TOP_LEVEL = {
    *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "MANIFEST.in", "Makefile"),
    *("constraints.txt", "pyproject.toml", "setup.py"),
}


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_wheel_and_sdist(tmp_path):
    source = tmp_path / "source"
    for folder in ("agg_fairseq", "benchmarks", "configs", "docs", "examples", "scripts", "tests"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.name in TOP_LEVEL:
            shutil.copy(path, source)
    expected = files_of(source) | {"PKG-INFO", "setup.cfg"}
    command = [sys.executable, "-c", BUILD]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=1800)
    assert built.returncode == 0, built.stderr[-3000:]
    with tarfile.open(next((source / "dist").glob("*.tar.gz"))) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {name for name in names if ".egg-info/" not in name} == expected
    with zipfile.ZipFile(next((source / "dist").glob("*.whl"))) as archive:
        archive.extractall(tmp_path / "site")
    package = files_of(ROOT / "agg_fairseq")
    assert {f"agg_fairseq/{name}" for name in package if "__pycache__" not in name} == {
        name for name in files_of(tmp_path / "site") if ".dist-info/" not in name
    }
    user_dir = tmp_path / "site" / "agg_fairseq"
    command = [sys.executable, "-c", USE, str(user_dir)]
    used = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    assert used.stdout == f"{user_dir / '__init__.py'} True\n", used.stderr[-3000:]
