"""The wheel and the source distribution: what they hold, and that the wheel works where it is installed; a release."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from agg_fairseq import __version__
from tests.conftest import ROOT, zipf_text

BUILD = "from setuptools.build_meta import *; build_sdist('dist'); build_wheel('dist')"
TOP_LEVEL = {
    *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "MANIFEST.in", "Makefile"),
    *("constraints.txt", "mkdocs.yml", "pyproject.toml", "setup.py"),
}


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_wheel_and_sdist(lm_data, tmp_path):
    """The wheel is installed into an empty environment, and trains there, with fairseq and with transformers."""
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
    pip = [folder / "bin" / "pip", "install", "--quiet", "--no-compile", "--constraint", ROOT / "constraints.txt"]
    for package in ("torch", f"{wheel}[fairseq,transformers]"):
        subprocess.run([*pip, package], check=True, cwd=tmp_path)
    for split, lines in (("train", 300), ("test", 60)):
        (tmp_path / f"wiki.{split}.tokens").write_text("\n".join(zipf_text(lines)) + "\n")
    shell = f"""
        export PATH={folder}/bin:$PATH PYTHONPATH=
        pip uninstall --quiet --yes torchaudio  # docs/compatibility.md says why
        fairseq-train {lm_data} --user-dir "$(agg-fairseq user-dir)" --task language_modeling --arch transformer_lm \\
          --decoder-layers 1 --decoder-embed-dim 8 --decoder-ffn-embed-dim 8 --decoder-attention-heads 1 \\
          --criterion agg --agg-rare-fraction 0.3 --agg-window 2 --tokens-per-sample 8 --max-tokens 64 --max-update 4 \\
          --optimizer adam --lr 0.01 --cpu --save-dir runs/agg
        agg-fairseq eval-lm runs/agg --data {lm_data}
        python {source}/examples/huggingface.py --data . --vocabulary 300 --updates 4 --block 16 --batch 4
    """
    ran = subprocess.run(["bash", "-ec", shell], cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    assert ran.returncode == 0 and "rare_share" in ran.stdout + ran.stderr, ran.stderr[-3000:]
    for row in ("agg ", "bias-fixed-agg "):
        assert f"\n| {row}" in ran.stdout


def test_a_release_has_one_version_and_date():
    """Of the package, CITATION.cff and CHANGELOG.md, which may still be unreleased."""
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.search(r"^## (\S+) \((.+)\)$", changelog, re.MULTILINE).groups()
    assert __version__ == version and f"\nversion: {version}\n" in citation
    assert date == "unreleased" or f"\ndate-released: {date}\n" in citation
