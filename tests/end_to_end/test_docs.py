"""The site of `make docs`: every page, link and public name."""

import pytest

from tests.conftest import run_command


@pytest.mark.slow
def test_the_site(tmp_path):
    """It is built without a warning, and the page of a module shows formula, source and comments of
    fields."""
    pytest.importorskip("mkdocs", reason="needs mkdocs: pip install '.[docs]'")
    run_command("mkdocs", "build", "--strict", "--site-dir", tmp_path)
    page = (tmp_path / "api" / "functional" / "index.html").read_text(encoding="utf-8")
    for shown in (
        "never gated",
        "agg_fairseq/functional/gated_linear.py",
        "where they are in the flattened targets",
    ):
        assert shown in page
    assert (tmp_path / "docs" / "images" / "projection.png").is_file()
