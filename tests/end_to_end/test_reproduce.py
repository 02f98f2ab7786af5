"""Scripts of tables: what is done once, what is refused and when, dry runs, several seeds, and the
index."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT, run_command
from tests.reproducing import LM, SCRIPTS, rows

pytestmark = pytest.mark.slow  # processes of their own
TABLE = "wikitext103/agg-tables-4-8-9.sh"


@pytest.fixture(scope="module")
def table(clone, prepared_data, tmp_path_factory):
    variables = {
        "SIZE": "tiny",
        "DATA": prepared_data,
        "RUNS": tmp_path_factory.mktemp("runs"),
        "MODELS": "mle no-g2",
    }
    return variables, clone.run(TABLE, *LM, **variables)


def refused(clone, *arguments, **variables):
    """The one line that a script prints before it does anything, with status 2."""
    result = clone.run(TABLE, *arguments, check=False, **variables)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    return result.stderr


def test_what_is_done_is_not_done_again_and_other_settings_are_refused(
    clone, table, prepared_data, tmp_path
):
    variables, first = table
    assert f"\nNot as published (SIZE=tiny {' '.join(LM)}): mle, no-g2\n\n" in first.stdout
    cells = rows(first.stdout.partition("AGG, Tables 8 and 9 ")[2])["agg"]
    assert cells == ["15.51", "not run", "13737", "not run", "0.813", "not run"]
    moved = shutil.copytree(prepared_data, tmp_path / "moved")
    again = clone.run(TABLE, *LM, **{**variables, "DATA": moved})
    assert again.stdout == first.stdout
    assert "training" not in again.stderr and "making" not in again.stderr
    (moved / "manifest.json").write_text('{"bpe": {"kind": "words"}, "another": 1}')
    for arguments, more, said in (
        ((), {"DATA": moved}, "task.data: "),
        ((), {"SEED": "2"}, "common.seed: 1, not 2"),
        (("optimization.max_update=7",), {}, "optimization.max_update: 4, not 7"),
    ):
        error = refused(clone, *LM, *arguments, **{**variables, **more})
        assert "holds a training of other settings (" in error and said in error


def test_what_was_made_of_something_else_is_made_anew(clone, table, tmp_path):
    runs = shutil.copytree(table[0]["RUNS"], tmp_path / "runs")
    picture, pictures = runs / "agg-figure-5.png", []
    for models, updates, made in (
        ("mle no-g2", 4, False),
        ("mle alpha-0.01 alpha-0.05", 4, True),
        ("mle alpha-0.05", 4, True),
        ("mle alpha-0.05", 5, True),
    ):
        if updates == 5:
            shutil.rmtree(runs / "mle")
            shutil.rmtree(runs / "alpha-0.05")
        options = (*LM, f"optimization.max_update={updates}")
        said = clone.run(TABLE, *options, **{**table[0], "RUNS": runs, "MODELS": models}).stderr
        assert ("making" in said) == (f"making {picture}" in said) == made, said
        assert f"making {runs}/mle/ppl.json" not in said or updates == 5
        if made:
            pictures.append(picture.read_bytes())
    assert len(set(pictures)) == 3


def test_a_wrong_option_is_told_before_anything_is_made(clone, tmp_path):
    new = {"RUNS": tmp_path / "new"}
    tiny = {"SIZE": "tiny", **new}
    for arguments, variables, said in (
        (["criterion.agg_alpha=0.05"], tiny, "Key 'agg_alpha' not in 'MleCriterionConfig'"),
        ([], {"SIZE": "huge"}, "found SIZE=huge; expected paper, small or tiny"),
        ([], {"DATA": "/nowhere"}, "found no folder DATA=/nowhere"),
        ([], {"MODELS": "mle aag", "DRY_RUN": 1}, "found aag; expected some of mle agg ul ul-agg"),
        ([], {"ALPHA": 5, **tiny}, "--criterion agg: expected alpha"),
        ([], new, "found 0 GPUs; expected one or more at this size"),
    ):
        assert said in refused(clone, *arguments, **variables)
        assert not (tmp_path / "new").exists()


def test_each_training_is_a_configuration_that_fairseq_takes(clone, tmp_path):
    """Of all scripts, at the size of the papers."""
    (tmp_path / "data").mkdir()
    trainings = []
    for name in SCRIPTS:
        plan = clone.run(name, DRY_RUN="plan", SIZE="paper", DATA=tmp_path / "data").stdout
        trainings += [line for line in plan.splitlines() if "/scripts/train.sh " in line]
    assert len(trainings) > 140
    # a new process, without fairseq at first, is faster; not in ROOT, which may have trainings
    checked = [sys.executable, "-m", "scripts.train", "--check", "--dry-run"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    lines = "\n".join(trainings)
    subprocess.run(checked, input=lines, text=True, check=True, cwd=tmp_path, env=environment)


def test_the_index_lists_the_scripts_also_where_nobody_reads_on(clone, tmp_path):
    listed = clone.run("reproduce.sh", "--list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == SCRIPTS and all("  " in line for line in listed)
    result = clone.run("reproduce.sh", "agg-12", check=False)
    assert result.returncode == 2
    assert "found the name agg-12" in result.stderr
    lacks_data = {"SIZE": "small", "AGG_DATA": "", "RUNS": tmp_path / "runs"}  # of a later script
    result = clone.run("reproduce.sh", "all", check=False, **lacks_data)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "found no DATA and no AGG_DATA" in result.stderr and not [*tmp_path.iterdir()]
    piped = f"bash {clone.root}/scripts/reproduce.sh --list | head -1"
    result = run_command("bash", "-c", piped)
    assert (result.stderr, result.stdout) == ("", listed[0] + "\n")
    printed = clone.run(TABLE, "--help").stdout
    assert printed.startswith("AGG, Tables 4, 8, 9 and 11") and "DRY_RUN=1" in printed
