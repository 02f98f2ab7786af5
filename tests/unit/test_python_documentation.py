"""The demo's corpus, prepared: one run at a time, and errors in one line."""

import subprocess
import sys

import pytest

from agg_fairseq.errors import UserError
from scripts.data import python_documentation
from scripts.data.locks import only_run_in
from tests.conftest import ROOT


def test_a_second_run_waits_for_the_first(tmp_path):
    with only_run_in(tmp_path):
        second = subprocess.Popen(
            [sys.executable, "-m", "scripts.data.python_documentation", "--output", tmp_path],
            cwd=ROOT, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert second.stderr.readline() == f"waiting for another run in {tmp_path} to end\n"
        second.kill()
        second.communicate(timeout=60)


def test_too_little_text(tmp_path, monkeypatch):
    monkeypatch.setattr(python_documentation, "documents", lambda: [["a few words of text"]] * 40)
    monkeypatch.setattr(sys, "argv", ["prepare", "--output", str(tmp_path / "out")])
    with pytest.raises(UserError, match="--vocabulary: found 8,000; expected a size that fits the text "):
        python_documentation.main()
    assert not (tmp_path / "out" / "text").exists()
