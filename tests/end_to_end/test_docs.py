"""The site of `make docs`: every page, link and public name."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.slow
def test_the_site(tmp_path):
    """It is built without a warning, and the page of a module shows formula, source and comments of
    fields."""
    pytest.importorskip("mkdocs", reason="needs mkdocs: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "api" / "functional" / "index.html").read_text(encoding="utf-8")
    for shown in (
        "never gated",
        "agg_fairseq/functional/gated_linear.py",
        "where they are in the flattened targets",
    ):
        assert shown in page
    assert (tmp_path / "docs" / "images" / "projection.png").is_file()
