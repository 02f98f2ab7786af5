"""The scripts of tables and figures of translation models at SIZE=tiny: each ends in its table or picture."""

import json
import shutil

import pytest

from tests.reproducing import MT, Clone

pytestmark = pytest.mark.slow
OF_SCRIPT = tuple(option for option in MT if not option.startswith(("optimization", "checkpoint")))
"""For figures, whose updates are those of their script."""
FROZEN = ("criterion.freeze_below=0.01",)  # in a corpus of 60 words
CASES = {  # options, models, pictures; tables have the rows of all calls
    "agg-table-7": [(MT, "", 0)],
    "agps-tables-1-3": [
        ((*MT, *FROZEN), "agps-base-freeze", 2),
        (OF_SCRIPT, "agps-early", 1),
        ((*OF_SCRIPT, *FROZEN), "agps-until", 1),
        (MT, "agps-base-mle agps-base-cosreg", 0),
        ((*MT, "criterion.agps_rare_rank=20"), "agps-base-agps", 0),
    ],
    "cosreg-table-2": [(MT, "", 3)],
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


@pytest.mark.parametrize("name", CASES)
def test_tables_and_figures(clone, runs, data, name):
    for options, models, pictures in CASES[name]:
        before = set(runs.glob("*.png"))
        variables = {"SIZE": "tiny", "RUNS": runs, "DATA": data, "WORDS": "t3", "MODELS": models}
        printed = clone.run(f"wmt14_en_de/{name}.sh", *options, **variables).stdout
        new = set(runs.glob("*.png")) - before
        assert len(new) == pictures and all(path.stat().st_size > 1000 for path in new)
    rows = [line.split("|") for line in printed.splitlines() if line.startswith("| ")]
    ours = [row for row in rows if "quoted" not in row[1] and "big-" not in row[1]]
    assert ours and not any("not run" in cell for row in ours for cell in row), printed
