import json
import math

import pytest

from agg_fairseq.columns import METRICS
from agg_fairseq.errors import UserError
from agg_fairseq.files import write_json
from agg_fairseq.result import (
    BETTER,
    SAME,
    SCHEMA,
    WORSE,
    Result,
    SeedValues,
    compare,
    format_change,
)

RESULT = Result(
    {
        "mle": {"perplexity": {"rare": 1234.56, "total": 20.0}, "ms_jaccard": {"2": 0.5}, "unique_tokens": 1234},
        "human": {"ms_jaccard": None, "unique_tokens": 7, "path": "a"},
    },
    {"perplexity": ["rare"], "ms_jaccard": ["2"], "unique_tokens": [""]},
    {"split": "test", "cosine": True, "state": None},
    version="0",
)  # fmt: skip
TWO_LABELS = Result(
    {("sea", "mle"): {"neighbor": {"1": "a|b"}}}, {"neighbor": ["1"]}, {}, labels=("", "checkpoint")
)


def test_result_as_a_table():
    """Title, decimals and percent follow from the measure; a count has no decimals; what is
    undefined is a dash."""
    assert RESULT.table().splitlines() == [
        "|       | PPL rare | MSJ-2 |  Uniq |",
        "|-------|---------:|------:|------:|",
        "| mle   | 1,234.56 |  50.0 | 1,234 |",
        "| human |        — |     — |     7 |",
    ]
    assert RESULT.table({"unique_tokens": [""], "kld": [""]}, transposed=True).splitlines() == [
        "|      |   mle | human |", "|------|------:|------:|", "| Uniq | 1,234 |     7 |",
    ]  # fmt: skip
    assert "human" not in RESULT.table({"perplexity": ["rare"]}), "a row without a value in these"
    header, _, row = TWO_LABELS.table().splitlines()
    assert (header, row) == ("|     | checkpoint |    1 |", "| sea |        mle | a\\|b |")
    obeyed = Result({"\x1b[2J\x9bm": {"unique_tokens": 1}}, {"unique_tokens": [""]}, {})
    assert "| \\x1b[2J\\x9bm |" in obeyed.table(), "a terminal would be cleared"


def test_the_total_is_named_only_beside_groups():
    values = {"a": {"isoscore": {"rare": 0.1, "total": 0.2}}}
    both = Result(values, {"isoscore": ["rare", "total"]}, {})
    for table, title in (
        (Result(values, {"isoscore": ["total"]}, {}).table(), "IsoScore"),
        (both.table(), "IsoScore rare | IsoScore total"),
        (both.table({"isoscore": ["total"]}), "IsoScore total"),
    ):
        assert table.startswith(f"|   | {title} |\n")


def test_values_are_those_of_the_row_or_those_shown():
    assert RESULT.value("human", "perplexity", "rare") is None
    assert RESULT.value("mle", "ms_jaccard", "2") == 0.5
    assert RESULT.shown("mle", "ms_jaccard", "2") == 50
    assert RESULT.signature == "split:test|cosine|version:0"


@pytest.mark.parametrize("result", [RESULT, TWO_LABELS])
def test_it_survives_json(result, tmp_path):
    path = tmp_path / "o.json"
    write_json(path, result.json())
    found = Result.read(path)
    assert (found.json(), found.rows) == (result.json(), result.rows)
    write_json(path, {**result.json(), "schema": 0})
    with pytest.raises(UserError, match="o.json: found the schema 0; expected 2"):
        Result.read(path)


@pytest.mark.parametrize("row", [{"perplexity": {"total": math.inf}}, {"kld": math.nan}])
def test_a_measure_is_finite_or_an_error(row):
    with pytest.raises(UserError, match="agg: found (inf|nan) as .*; expected a finite number"):
        Result({"agg": row}, {}, {})


def test_another_file_is_no_result(tmp_path):
    (tmp_path / "o.json").write_text(json.dumps({"schema": SCHEMA, "rows": []}))
    with pytest.raises(UserError, match="o.json: .*; expected what a command of agg-fairseq wrote"):
        Result.read(tmp_path / "o.json")


def test_changes_are_of_the_same_seed():
    mle = SeedValues({1: 100.0, 2: 200.0, 3: 300.0})
    agg = SeedValues({1: 90.0, 2: 190.0, 3: "not run"})
    assert (mle.format(1), agg.format(1)) == ("200.0 ± 100.0", "140.0 ± 70.7 (n = 2)")
    assert agg.change(mle).numbers == {1: -10.0, 2: -10.0}
    assert agg.change(mle, relative=True).numbers == pytest.approx({1: -10.0, 2: -5.0})
    assert format_change(agg.change(mle, relative=True), METRICS["perplexity"]) == "-7.5% ± 3.5"
    assert agg.change(mle).format(2, sign="+") == "-10.00 ± 0.00"
    assert mle.change(SeedValues({1: 0.0, 4: 3.0}), relative=True).numbers == {}


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((12, 12), "12"),
        ((12, 13), "12.50 ± 0.71"),
        (("not run", None), "not run / —"),
    ],
)
def test_values_of_seeds_in_a_table(values, shown):
    assert SeedValues(dict(enumerate(values))).format(2) == shown


@pytest.mark.parametrize(
    ("metric", "mle", "agg", "change"),
    [
        ("perplexity", 100.0, 50.0, "-50.0%"),
        ("unique_tokens", 50, 60, "+20.0%"),
        ("mean_cosine", 0.3, -0.1, "-0.400"),
    ],
)
def test_a_difference_of_one_seed_is_not_tested(metric, mle, agg, change):
    base, none = SeedValues({1: mle}), SeedValues({1: None})
    assert compare(METRICS[metric], SeedValues({1: agg}), base)[1:] == (change, "")
    for pair in ((none, base), (base, none)):
        assert compare(METRICS[metric], *pair)[1:] == ("", "")


@pytest.mark.parametrize(
    ("metric", "mle", "agg", "verdict"),
    [
        ("unique_predictions", 50, 60, BETTER),
        ("mean_cosine", 0.3, -0.1, BETTER),
        ("mean_cosine", 0.3, -0.301, SAME),  # on the other side of 0, as far away
        ("rare_frequent_cosine", 0.5, 0.8, ""),
        ("repetition", 30.0, 10.0, BETTER),  # nearer to the 5 of the human texts
        ("repetition", 6.0, 0.0, WORSE),
        ("repetition", 2.0, 8.01, SAME),
    ],
)
def test_what_is_better_depends_on_the_metric(metric, mle, agg, verdict):
    """In seeds that differ by a hundredth of the value."""
    base = SeedValues({1: mle, 2: mle, 3: 1.01 * mle})
    value = SeedValues({1: agg, 2: 1.01 * agg, 3: agg})
    assert compare(METRICS[metric], value, base, 5.0).verdict == verdict


@pytest.mark.parametrize(
    ("mle", "agg", "verdict"),
    [
        # Paired changes count, though the seeds differ by far more: two standard errors, 2 · √(1/3).
        ({1: 90.0, 2: 100.0, 3: 110.0}, {1: 89.8, 2: 98.8, 3: 107.8}, BETTER),
        ({1: 90.0, 2: 100.0, 3: 110.0}, {1: 89.9, 2: 98.9, 3: 107.9}, SAME),
        # Other seeds: two standard errors, 2 · sd · √(1/3 + 1/3), with the larger of both sd.
        ({1: 99.0, 2: 100.0, 3: 101.0}, {4: 98.0, 5: 98.5, 6: 99.0}, SAME),
        ({1: 99.0, 2: 100.0, 3: 101.0}, {4: 97.8, 5: 98.3, 6: 98.8}, BETTER),
        # A single seed beside several: 2 · sd · √(1/3 + 1).
        ({1: 99.0, 2: 100.0, 3: 101.0}, {1: 102.4}, WORSE),
    ],
)
def test_seeds_decide_what_is_clear(mle, agg, verdict):
    assert compare(METRICS["perplexity"], SeedValues(agg), SeedValues(mle)).verdict == verdict
