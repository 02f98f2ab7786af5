"""README's recipe, as it stands but for the numbers of updates, on a small text."""

import re

import pytest

from tests.conftest import ROOT, run_command, write_lines, zipf_splits


@pytest.mark.slow
def test_the_recipe_leads_from_a_text_to_a_report(tmp_path):
    [recipe] = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "text").mkdir()
    recipe = recipe.replace("UPDATES=4000", "UPDATES=6")
    recipe = recipe.replace("bash scripts/", f"bash {ROOT}/scripts/").replace("8000", "60")
    recipe = recipe.replace("--log-format", "--log-interval 2 --log-format").replace("1000", "2")
    recipe += "agg-fairseq average-checkpoints runs/lm/mle --last 2 --by update -o average.pt\n"
    for split, lines in zipf_splits(400, 200, words=200).items():
        write_lines(tmp_path / "text" / split, lines)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    command, environment = ("bash", "-euo", "pipefail", "-c", recipe), {"PYTHONPATH": str(ROOT)}
    printed = run_command(*command, cwd=tmp_path, env=environment).stdout
    has_window = "--agg-window" in printed
    assert has_window is ("no useful window: AGG is left out" not in printed)
    rows = re.findall(r"^\| (mle|agg|longer) ", printed, re.M)
    assert sorted(rows) == ["agg"] * has_window + ["longer", "mle"], printed
    assert "PPL total: " in (tmp_path / "report.html").read_text()
    assert (tmp_path / "average.pt").exists()
