"""The wheel and the source distribution: what they hold, and that the wheel trains where it is installed."""

import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tests.conftest import ROOT

BUILD = "from setuptools.build_meta import *; build_sdist('dist'); build_wheel('dist')"
TOP_LEVEL = {
    *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "MANIFEST.in", "Makefile"),
    *("constraints.txt", "mkdocs.yml", "pyproject.toml", "setup.py"),
}


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_wheel_and_sdist(lm_data, tmp_path):
    """The wheel is installed into an empty environment, and trains there."""
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
    [wheel] = (source / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        installed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert installed == {f"agg_fairseq/{name}" for name in files_of(source / "agg_fairseq")}
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    for packages in (["torch==2.13.0"], ["--constraint", ROOT / "constraints.txt", f"{wheel}[fairseq]"]):
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", *packages], check=True, cwd=tmp_path)
    shell = f"""
        export PATH={folder}/bin:$PATH PYTHONPATH=
        fairseq-train {lm_data} --user-dir "$(agg-fairseq user-dir)" --task language_modeling --arch transformer_lm \\
          --decoder-layers 1 --decoder-embed-dim 8 --decoder-ffn-embed-dim 8 --decoder-attention-heads 1 \\
          --criterion agg --agg-rare-fraction 0.3 --agg-window 2 --tokens-per-sample 8 --max-tokens 64 --max-update 4 \\
          --optimizer adam --lr 0.01 --cpu --save-dir runs/agg
    """
    trained = subprocess.run(["bash", "-ec", shell], cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    assert trained.returncode == 0 and "rare_share" in trained.stdout + trained.stderr, trained.stderr[-3000:]
    assert (tmp_path / "runs" / "agg" / "checkpoint_last.pt").is_file()
