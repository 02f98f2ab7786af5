"""The scripts of tables and figures of language models at SIZE=tiny: each ends in its table or picture."""

import pytest

from tests.reproducing import LM, Clone, words_of_wikitext

pytestmark = pytest.mark.slow
AWD = (
    "optimization.max_epoch=1", "optimization.max_update=6", "model.decoder_embed_dim=8", "model.decoder_hidden_size=8",
)  # fmt: skip
OF_SCRIPT = tuple(option for option in LM if not option.startswith(("optimization", "checkpoint")))
"""For figures, whose updates are those of their script."""
CASES = {  # options, models, and a number of the paper in a line of the tables; the pictures
    "agg-tables-1-2": [
        (LM, "study-mle study-freeze study-freeze-bc study-freeze-b study-freeze-c", ("PPL rare", "813.76"), 0),
        (OF_SCRIPT, "early", None, 1),
        (
            (*LM, "optimization.max_update=20", "checkpoint.save_interval_updates=5", "criterion.freeze_until=10"),
            "until-105 until-270 until-435", None, 1,
        ),
    ],
    "agg-table-3": [(LM, "", ("Uniq total", "13143"), 2)],
    "agg-tables-4-8-9": [
        (LM, "mle agg ul ul-agg no-g1 no-g2 static", ("PPL rare", "385.6"), 0),
        (LM, "alpha-0.01 alpha-0.05 agg-early", None, 2),
    ],
    "agps-table-4": [(LM, "", ("words-agps", "18.44"), 0)],
    "f2-tables-1-2": [(LM, "", ("Table 4", "5.3"), 1)],
    "f2-tables-3-8": [
        (LM, "f2-mle f2 f2-transfer f2-equal-frequency-2 f2-equal-frequency-4 f2-equal-token-2 f2-equal-token-4",
         ("", "76.1"), 1),
    ],
    "cosreg-table-1": [(AWD, "", ("awd-mle", "69.1"), 1)],
}  # fmt: skip


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return Clone(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of all tables, which share what they have in common."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def data(clone, shared_data, tmp_path_factory):
    """The beginning of WikiText-2, prepared in words: enough for the ranks of AGPS."""
    return words_of_wikitext(clone, shared_data, tmp_path_factory.mktemp("prepared"))


@pytest.mark.parametrize("name", CASES)
def test_tables_and_figures(clone, runs, data, name):
    for options, models, number, pictures in CASES[name]:
        before = set(runs.glob("*.png"))
        folder = "wikitext2" if name.startswith("cosreg") else "wikitext103"
        printed = clone.run(f"{folder}/{name}.sh", *options, SIZE="tiny", RUNS=runs, MODELS=models, DATA=data).stdout
        new = set(runs.glob("*.png")) - before
        assert len(new) == pictures and all(path.stat().st_size > 1000 for path in new)
        if number is not None:
            assert any(row[0].startswith(number[0]) and number[1] in row for row in cells(printed)), printed
        if not models:
            assert "not run" not in printed


def cells(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
