"""examples/huggingface.py, with a small text and few updates."""

import runpy
from pathlib import Path

import pytest

import tests.small_transformers  # noqa: F401 — makes transformers importable beside a torchaudio that is not
from tests.conftest import zipf_text

pytest.importorskip("transformers", reason="needs transformers 5: pip install '.[transformers]'")
pytest.importorskip("accelerate", reason="needs accelerate: pip install '.[transformers]'")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "huggingface.py"


def test_example_prints_a_row_for_each_model(tmp_path, capsys):
    for split, lines in (("train", 300), ("test", 60)):
        (tmp_path / f"wiki.{split}.tokens").write_text("\n".join(zipf_text(lines)) + "\n")
    options = "--vocabulary 300 --updates 4 --block 16 --batch 4 --rare-fraction 0.3".split()
    runpy.run_path(str(EXAMPLE))["main"](["--data", str(tmp_path), "--output", str(tmp_path / "out"), *options])
    rows = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("| MLE") or line.startswith("| AGG")
    ]
    assert [len(row.split("|")) for row in rows] == [9, 9]
    assert rows[0].split("|")[2:] != rows[1].split("|")[2:]
    assert (tmp_path / "out" / "agg" / "model.safetensors").is_file()


def test_example_says_what_is_missing(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(EXAMPLE))["main"](["--data", str(tmp_path)])
    assert stop.value.code == 2
    assert "found no" in capsys.readouterr().err
