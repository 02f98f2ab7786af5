"""The scripts of tables and figures of translation models at SIZE=tiny: each ends in its table or picture."""

import json
import shutil

import pytest

from tests.reproducing import MT, Clone

pytestmark = pytest.mark.slow
FROZEN = ("criterion.freeze_below=0.01",)
PICTURES = {
    "agg-table-7": 0, "agps-tables-1-2": 1, "agps-words": 1, "agps-figure-1": 1, "agps-figure-2": 1,
    "cosreg-table-2": 3,
}  # fmt: skip


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


@pytest.mark.parametrize("name", PICTURES)
def test_a_table_or_figure(clone, runs, data, name):
    options, before = MT, set(runs.glob("*.png"))
    variables = {"SIZE": "tiny", "RUNS": runs, "DATA": data, "WORDS": "t3"}
    if name == "agps-tables-1-2":  # for a corpus of 60 words; tables have the rows of all calls
        for rows, own in (("agps-base-mle agps-base-cosreg", ()), ("agps-base-freeze", FROZEN)):
            clone.run(f"wmt14_en_de/{name}.sh", *MT, *own, MODELS=rows, **variables)
        variables["MODELS"], options = "agps-base-agps", (*MT, "criterion.agps_rare_rank=20")
    if name.startswith("agps-figure"):  # the updates of a figure are those of its script
        options = [option for option in MT if not option.startswith(("optimization", "checkpoint"))]
        options += FROZEN if name == "agps-figure-2" else []
    printed = clone.run(f"wmt14_en_de/{name}.sh", *options, **variables).stdout
    pictures = set(runs.glob("*.png")) - before
    assert len(pictures) == PICTURES[name] and all(path.stat().st_size > 1000 for path in pictures)
    if "table" in name:
        rows = [line.split("|") for line in printed.splitlines() if line.startswith("| ")]
        ours = [row for row in rows if "quoted" not in row[1] and "big-" not in row[1]]
        assert ours and not any("not run" in cell for row in ours for cell in row), printed
