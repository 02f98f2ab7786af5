"""The wheel and the source distribution: what they hold, and that the wheel works; a release."""

import re
import shutil
import tarfile

import pytest

from agg_fairseq import __version__
from tests.conftest import ROOT, SMALL_LM, run_command

BUILD = "from setuptools.build_meta import *; build_sdist('dist'); build_wheel('dist')"
TOP_LEVEL = set(
    "CHANGELOG.md CITATION.cff CONTRIBUTING.md LICENSE README.md MANIFEST.in Makefile "
    "constraints.txt mkdocs.yml pyproject.toml setup.py".split()
)


def list_files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_wheel_and_sdist(lm_data, tmp_path):
    source = tmp_path / "source"
    for folder in ("agg_fairseq", "benchmarks", "configs", "docs", "examples", "scripts", "tests"):
        shutil.copytree(
            ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for path in ROOT.iterdir():
        if path.name in TOP_LEVEL:
            shutil.copy(path, source)
    expected = list_files(source) | {"PKG-INFO", "setup.cfg"}
    run_command("python", "-c", BUILD, cwd=source)
    with tarfile.open(next((source / "dist").glob("*.tar.gz"))) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {name for name in names if ".egg-info/" not in name} == expected
    [wheel] = (source / "dist").glob("*.whl")
    run_command(
        "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target",
        tmp_path / "installed", wheel,
    )  # fmt: skip
    assert list_files(tmp_path / "installed" / "agg_fairseq") == list_files(source / "agg_fairseq")
    program = "from fairseq_cli.train import cli_main; cli_main(); import agg_fairseq; print(agg_fairseq.__file__)"
    environment = {"PYTHONPATH": str(tmp_path / "installed"), "PYTHONSAFEPATH": "1"}
    user_dir = tmp_path / "installed" / "agg_fairseq" / "fairseq_plugin" / "user_dir" / "agg_plugin"
    arguments = (lm_data, *SMALL_LM, "--user-dir", user_dir, "--no-save", "--criterion", "agg")
    ran = run_command("python", "-c", program, *arguments, cwd=tmp_path, env=environment)
    assert "rare_share" in ran.stdout + ran.stderr and str(tmp_path / "installed") in ran.stdout


def test_a_release_has_one_version_and_date():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.search(r"^## (\S+) \((.+)\)$", changelog, re.MULTILINE).groups()
    assert __version__ == version + ".dev0" * (date == "unreleased")
    assert f"\nversion: {__version__}\n" in citation
    assert date == "unreleased" or f"\ndate-released: {date}\n" in citation
