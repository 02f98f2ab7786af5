"""examples/huggingface.py with a small text and few updates, and the commands on the folders that it leaves."""

import runpy
from pathlib import Path

import pytest

import tests.small_transformers  # noqa: F401 — makes transformers importable beside a torchaudio that is not
from tests.conftest import zipf_text

pytest.importorskip("transformers", reason="needs transformers 5: pip install '.[transformers]'")
pytest.importorskip("accelerate", reason="needs accelerate: pip install '.[transformers]'")

from agg_fairseq.checkpoints.opening import open_models
from agg_fairseq.evaluation import isotropy, neighbors

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "huggingface.py"


def test_example_prints_a_row_for_each_model(tmp_path, capsys):
    for split, lines in (("train", 300), ("test", 60)):
        (tmp_path / f"wiki.{split}.tokens").write_text("\n".join(zipf_text(lines)) + "\n")
    options = "--vocabulary 300 --updates 4 --block 16 --batch 4 --rare-fraction 0.3".split()
    runpy.run_path(str(EXAMPLE))["main"](["--data", str(tmp_path), "--output", str(tmp_path / "out"), *options])
    printed = [
        line.split("|")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(("| mle", "| agg", "| bias"))
    ]
    assert [cells[1].strip() for cells in printed] == ["mle", "agg", "bias-fixed-agg"]
    assert len({tuple(cells[2:]) for cells in printed}) == 3
    models = open_models([tmp_path / "out" / "mle", tmp_path / "out" / "agg"])
    rows = isotropy(models, text=tmp_path / "wiki.train.tokens")
    for cells, name in zip(printed[:2], ("mle", "agg"), strict=True):
        assert f"{rows[name]['IsoScore total']:.3f}" == cells[7].strip()
    found = neighbors(models, None, text=tmp_path / "wiki.train.tokens", words=["w3"], topk=2)
    assert found.details["words"][0]["tokens"][0]["count"] > 0


def test_example_says_what_is_missing(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(EXAMPLE))["main"](["--data", str(tmp_path)])
    assert stop.value.code == 2
    assert "found no" in capsys.readouterr().err
