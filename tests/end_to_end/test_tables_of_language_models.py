"""The scripts of tables and figures of language models at SIZE=tiny: each ends in its table or picture."""

import pytest

from tests.reproducing import LM, Clone, head_of, words_of_wikitext

pytestmark = pytest.mark.slow
AWD = (
    "optimization.max_epoch=1", "optimization.max_update=6", "model.decoder_embed_dim=8", "model.decoder_hidden_size=8",
)  # fmt: skip
UNTIL = ("optimization.max_update=20", "checkpoint.save_interval_updates=5")
PAPER_NUMBERS = {
    "agg-tables-1-2": ("PPL rare", "813.76"), "agg-table-3": ("Uniq total", "13143"),
    "agg-table-4": ("PPL rare", "385.6"),
    "agg-tables-8-9": ("static", "15.55"), "agps-table-4": ("words-agps", "18.44"),
    "cosreg-table-1": ("awd-mle", "69.1"),
    "f2-tables-1-2": ("Table 4", "5.3"), "f2-table-10": ("top20 SB-2", "78.9"), "f2-tables-3-8": ("", "76.1"),
}  # fmt: skip
"""In the line of a table, a number of the paper."""
PICTURES = {"agg-figure-1": 1, "agg-figure-2": 1, "agg-figure-4": 1, "agg-figure-5": 1, "agg-table-3": 2,
            "f2-tables-1-2": 1, "f2-tables-3-8": 1, "cosreg-table-1": 1}  # fmt: skip
MODELS = {
    "agg-figure-5": "mle alpha-0.02 alpha-0.4",
    "f2-tables-3-8": "f2-mle f2 f2-transfer"
    " f2-equal-frequency-2 f2-equal-frequency-4 f2-equal-token-2 f2-equal-token-4",
    "f2-table-10": "f2-mle f2",
}
"""Of the longest, the rows that are left."""


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


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("wikitext103/agg-tables-1-2", LM),
        ("wikitext103/agg-table-3", LM),
        ("wikitext103/agg-table-4", LM),
        ("wikitext103/agg-tables-8-9", LM),
        ("wikitext103/agg-figure-1", ()),
        ("wikitext103/agg-figure-2", (*LM, *UNTIL, "criterion.freeze_until=10")),
        ("wikitext103/agg-figure-4", ()),
        ("wikitext103/agg-figure-5", LM),
        ("wikitext103/agps-table-4", LM),
        ("wikitext103/f2-tables-1-2", LM),
        ("wikitext103/f2-table-10", LM),
        ("wikitext103/f2-tables-3-8", LM),
        ("wikitext2/cosreg-table-1", AWD),
    ],
)
def test_a_table_or_figure(clone, runs, data, name, options):
    stem = name.partition("/")[2]
    before = set(runs.glob("*.png"))
    if not options:  # the updates of a figure are those of its script
        options = tuple(option for option in LM if not option.startswith(("optimization", "checkpoint")))
    printed = clone.run(f"{name}.sh", *options, SIZE="tiny", RUNS=runs, MODELS=MODELS.get(stem, ""), DATA=data)
    pictures = set(runs.glob("*.png")) - before
    assert len(pictures) == PICTURES.get(stem, 0) and all(path.stat().st_size > 1000 for path in pictures)
    if stem in PAPER_NUMBERS:
        line, number = PAPER_NUMBERS[stem]
        assert any(row[0].startswith(line) and number in row for row in cells(printed.stdout)), printed.stdout
    if stem not in MODELS:
        assert "not run" not in printed.stdout


def cells(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def test_the_size_of_a_corpus(clone, shared_data, tmp_path):
    """From raw text."""
    names = [f"wiki.{split}.tokens" for split in ("train", "valid", "test")]
    text = head_of(shared_data / "wikitext-2", tmp_path / "text", names, {"": 60})
    printed = clone.run("wikitext103/f2-table-5.sh", DATA=text, RUNS=tmp_path / "runs", SIZE="tiny")
    assert "113,655,420" in printed.stdout
