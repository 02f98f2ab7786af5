"""README's recipe, as it stands but for the numbers of updates, on a small text."""

import os
import re
import subprocess

import pytest

from tests.conftest import ROOT, write_lines, zipf_text


@pytest.mark.slow
def test_the_recipe_leads_from_a_text_to_a_report(tmp_path):
    [recipe] = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "text").mkdir()
    recipe = recipe.replace("UPDATES=4000", "UPDATES=6")
    recipe = recipe.replace("bash scripts/", f"bash {ROOT}/scripts/").replace("8000", "60")
    recipe = recipe.replace("--log-format", "--log-interval 2 --log-format").replace("1000", "2")
    recipe += "agg-fairseq average-checkpoints runs/lm/mle --last 2 --by update -o average.pt\n"
    for number, (split, lines) in enumerate({"train": 400, "valid": 200, "test": 200}.items()):
        write_lines(tmp_path / "text" / split, zipf_text(lines, 200, seed=number))
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", recipe],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    has_window = "--agg-window" in done.stdout
    assert has_window is ("no useful window: AGG is left out" not in done.stdout)
    rows = re.findall(r"^\| (mle|agg|longer) ", done.stdout, re.M)
    assert sorted(rows) == ["agg"] * has_window + ["longer", "mle"], done.stdout
    assert "PPL total: " in (tmp_path / "report.html").read_text()
    assert (tmp_path / "average.pt").exists()
