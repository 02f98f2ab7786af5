"""scripts/reproduce.sh at --scale tiny, from raw text in two languages to BLEU, with models of a few updates."""

import pytest

from tests.conftest import zipf_text
from tests.reproducing import MT, reproduce, rows


@pytest.fixture(scope="module")
def parallel(tmp_path_factory):
    """A raw parallel corpus in a folder with a space in its name."""
    folder = tmp_path_factory.mktemp("raw") / "two languages"
    folder.mkdir()
    for split, lines in (("train", 400), ("valid", 20), ("test", 20)):
        for language, prefix in (("en", "word"), ("de", "wort")):
            text = "\n".join(zipf_text(lines, seed=len(split), prefix=prefix)) + "\n"
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.slow
def test_table_7_from_raw_text_to_bleu(parallel, tmp_path):
    printed = reproduce(
        "agg-7",
        "--scale",
        "tiny",
        "--data",
        "two languages",
        "--output",
        tmp_path / "ü",
        *MT,
        "optimization.max_update=12",
        cwd=parallel.parent,
    )
    table = rows(printed.stdout)
    assert table[""] == ["BLEU, paper", "BLEU", "sacreBLEU"]
    assert table["AGG base"][0] == "28.70" and table["SC base"] == ["28.45", "quoted", "quoted"]
    assert table["AGG big"] == ["29.81", "not run", "not run"]
    for method in ("Transformer base", "CosReg base", "Adv MLE base", "AGG base"):
        assert all(0 <= float(cell) <= 100 for cell in table[method][1:])
    assert (tmp_path / "ü" / "agg-base-agg" / "averaged.pt").is_file() and "version:2" in printed.stdout
