import json
import math

import pytest

from agg_fairseq.measures import Column
from agg_fairseq.result import Result, SeedValues, format_change

RESULT = Result(
    columns=[Column("PPL", digits=1), Column("Uniq", "tokens"), Column("note")],
    rows={"mle": [1234.56, 1234, "a|b"], "human": [None, 7, None]},
    signature="split:test|version:0",
    details={"checkpoints": [{"name": "mle", "perplexity": 1234.56}]},
)
TWO_LABELS = Result([Column("1")], {("sea", "mle"): ["lake (0.90)"]}, "s", labels=("", "checkpoint"))


def test_result_as_a_table():
    """A float has the decimals of its column, a count none; what is undefined is a dash."""
    assert RESULT.table().splitlines() == [
        "|       |     PPL |  Uniq | note |",
        "|-------|--------:|------:|-----:|",
        "| mle   | 1,234.6 | 1,234 | a\\|b |",
        "| human |       — |     7 |    — |",
    ]
    header, _, row = TWO_LABELS.table().splitlines()
    assert (header, row) == ("|     | checkpoint |           1 |", "| sea |        mle | lake (0.90) |")


def test_values_are_not_rounded():
    assert RESULT["mle"] == {"PPL": 1234.56, "Uniq": 1234, "note": "a|b"}
    assert TWO_LABELS["sea", "mle"] == {"1": "lake (0.90)"}
    assert RESULT.formatted()[1] == (("human",), [None, "7", None])
    assert RESULT.json() == {"signature": RESULT.signature, **RESULT.details}
    with pytest.raises(KeyError):
        RESULT["agg"]


@pytest.mark.parametrize("result", [RESULT, TWO_LABELS])
def test_it_survives_json(result):
    found = Result.from_dict(json.loads(json.dumps(result.to_dict())))
    assert found.table() == result.table() and found.json() == result.json() and found.rows == result.rows


def test_result_from_rows_by_title():
    """The columns are the titles of all rows, as they are declared; what a row lacks is None."""
    result = Result.of({"mle": {"Uniq total": 5, "MEN": 1.0}, "human": {"Uniq total": 7}}, "s", units={"MEN": "x"})
    assert result.columns == [Column("Uniq total", "tokens", 0), Column("MEN", "x")]
    assert result.rows == {"mle": [5, 1.0], "human": [7, None]}


def of_seed(mle, agg):
    rows = {"mle": [mle, 7], "agg": [agg, None], "human": [None, 9]}
    return Result([Column("PPL total", digits=1), Column("note")], rows, f"seed:{mle}")


def test_aggregate_of_seeds():
    """Mean ± standard deviation; what is the same for all seeds once; changes are of the same seed."""
    found = Result.aggregate({1: of_seed(100.0, 90.0), 2: of_seed(200.0, 190.0), 3: of_seed(300.0, "not run")})
    cells = [cells for _, cells in found.formatted()]
    assert cells == [["200.0 ± 100.0", "7"], ["140.0 ± 70.7 (n = 2)", None], [None, "9"]]
    assert found.signature == "seed:100.0\nseed:200.0\nseed:300.0"
    mle, agg = (found[name]["PPL total"] for name in ("mle", "agg"))
    assert agg.change(mle).numbers == {1: -10.0, 2: -10.0}
    assert agg.change(mle, relative=True).numbers == pytest.approx({1: -10.0, 2: -5.0})
    assert format_change(agg.change(mle, relative=True), found.columns[0]) == "-7.5% ± 3.5"
    assert agg.change(mle).format(2, sign="+") == "-10.00 ± 0.00"
    assert mle.change(SeedValues({1: 0.0, 4: 3.0}), relative=True).numbers == {}
    other = Result.of({"agps": {"PPL total": 1.0}}, "s")
    assert "1.00 (n = 1)" in Result.aggregate({1: other, 2: Result.of({"mle": {"PPL total": 2.0}}, "s")}).table()
    with pytest.raises(ValueError, match="expected results with the same columns"):
        Result.aggregate({1: other, 2: of_seed(100.0, 90.0)})


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((12, 12), "12"),
        ((12, 13), "12.50 ± 0.71"),
        (("not run", None), "not run / —"),
        ((math.inf, 1.0), "inf"),
        ((math.nan, 1.0), "1.00 (n = 1)"),
    ],
)
def test_values_of_seeds_in_a_table(values, shown):
    assert SeedValues(dict(enumerate(values))).format(2) == shown


@pytest.mark.parametrize(
    "change",
    [{"columns": 3}, {"columns": [{"title": "n", "digits": "x"}]}, {"rows": [[["row"], [{}]]]}, {"details": None}],
)
def test_other_json_is_a_value_error(change):
    with pytest.raises(ValueError, match=r"expected what Result.to_dict returns"):
        Result.from_dict({**RESULT.to_dict(), **change})
