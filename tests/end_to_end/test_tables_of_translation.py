"""The scripts of tables and figures of translation models at SIZE=tiny: each ends in its table or picture."""

import json
import shutil

import pytest

from tests.reproducing import MT, Clone

pytestmark = pytest.mark.slow
PICTURES = {"agg-table-7": 0, "agps-tables-1-2": 1, "agps-words": 1, "agps-figures-1-2": 2, "cosreg-table-2": 3}
UNTIL = tuple(option for option in MT if not option.startswith("optimization"))


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return Clone(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def data(mt_data, tmp_path_factory):
    """What prepare.sh leaves of a corpus: binarized, and with the plain text of its test split."""
    folder = tmp_path_factory.mktemp("prepared")
    shutil.copytree(mt_data, folder / "data-bin")
    (folder / "manifest.json").write_text(json.dumps({"corpus": "zipf", "bpe": {"kind": "words"}}))
    (folder / "reference").mkdir()
    for language in ("en", "de"):
        text = (mt_data.parent / f"test.{language}").read_text()
        (folder / "reference" / f"test.{language}").write_text(text)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("name", ["agg-table-7", "agps-tables-1-2", "agps-words", "cosreg-table-2", "agps-figures-1-2"])
def test_a_table_or_figure(clone, runs, data, name):
    options, variables = MT, {"SIZE": "tiny", "RUNS": runs, "DATA": data}
    if name == "agps-tables-1-2":  # the rank of a corpus of 60 words; tables have the rows of all calls
        clone.run(f"wmt14_en_de/{name}.sh", *MT, MODELS="agps-base-mle agps-base-freeze agps-base-cosreg", **variables)
        variables["MODELS"], options = "agps-base-agps", (*MT, "criterion.agps_rare_rank=20")
    if name == "agps-words":
        variables["WORDS"] = "t3"
    if name == "agps-figures-1-2":
        options = ("optimization.max_update=4", "checkpoint.save_interval_updates=1", *UNTIL[2:])
    before = set(runs.glob("*.png"))
    printed = clone.run(f"wmt14_en_de/{name}.sh", *options, **variables).stdout
    pictures = set(runs.glob("*.png")) - before
    assert len(pictures) == PICTURES[name] and all(path.stat().st_size > 1000 for path in pictures)
    if "table" in name:
        rows = [line.split("|") for line in printed.splitlines() if line.startswith("| ")]
        ours = [row for row in rows if "quoted" not in row[1] and "-big-" not in row[1] and "big-" not in row[1]]
        assert ours and not any("not run" in cell for row in ours for cell in row), printed
