"""scripts/reproduce.sh at --scale tiny: the factorized output layer and its baselines, with models of a few updates."""

import pytest

from tests.reproducing import LM, reproduce, rows


@pytest.mark.slow
def test_table_1_of_f2_from_training_to_texts(prepared_data, tmp_path):
    """All five trainings, two of them fine-tuning; texts of 100 tokens from each."""
    printed = reproduce("f2-1", "--scale", "tiny", "--data", prepared_data, "--output", tmp_path, *LM)
    table = rows(printed.stdout)
    assert table[""][8:] == ["F²-Softmax, paper", "F²-Softmax", "Human, paper", "Human"]
    assert table["KLD"][0] == "1.51" and table["KLD"][-1] == "—"
    assert table["Uniq"][-2] == "15.2k" and 10 < int(table["Uniq"][-1]) <= 64
    assert all(cell != "not run" for row in table.values() for cell in row)
    names = {f"f2-{row}" for row in ("mle", "face", "ul-token", "ul-token-seq", "f2")}
    assert names <= {path.name for path in tmp_path.iterdir()}
