"""What a report says of models and their seeds: names, means, differences, and which is better."""

import statistics
import types

import pytest

from agg_fairseq.errors import UserError
from agg_fairseq.report.comparison import BETTER, SAME, WORSE, Comparison, Model
from agg_fairseq.report.glossary import MEASURES, groups_in_words, measure_of
from agg_fairseq.result import Column, Result

MLE, AGG = Model("mle", ("mle",)), Model("agg", ("agg",))
PAIR = Comparison([MLE, AGG], MLE)


def run(name, seed, **options):
    state = {"cfg": {"common": {"seed": seed}, "criterion": {"_name": "agg", **options}}}
    return types.SimpleNamespace(name=name, checkpoint=types.SimpleNamespace(state=state))


def column(title, rows, digits=2, unit=""):
    return Result([Column(title, unit, digits)], {name: [value] for name, value in rows.items()}, "s")


def test_runs_of_other_seeds_are_one_model():
    runs = [run("mle-1", 1), run("agg-1", 1, a=2), run("mle-2", 2), run("agg-2", 2, a=2), run("again", 1)]
    comparison = Comparison.of_runs(runs)
    assert [model.runs for model in comparison.models] == [("mle-1", "mle-2"), ("agg-1", "agg-2"), ("again",)]
    assert [model.name for model in comparison.models] == ["mle", "agg", "again"]
    assert comparison.title(comparison.baseline) == "mle (2 seeds, baseline)"
    assert Comparison.of_runs(runs, "agg-2").baseline.name == Comparison.of_runs(runs, "agg").baseline.name == "agg"
    with pytest.raises(UserError, match="--baseline: found 'x'; expected the name of a run: mle-1, agg-1"):
        Comparison.of_runs(runs, "x")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("mle-seed-1", "mle-seed-2"), "mle"),
        (("seed-1/mle", "seed-2/mle"), "mle"),
        (("base_s1", "base_s12"), "base"),
        (("1", "2"), "1"),
        (("bias-1", "bias-2"), "bias"),
        (("loss1", "loss2"), "loss"),
        (("a", "b"), "a"),
    ],
)
def test_the_name_of_several_seeds(names, expected):
    (model,) = Comparison.of_runs([run(name, seed) for seed, name in enumerate(names)]).models
    assert model.name == expected


@pytest.mark.parametrize(
    ("title", "values", "difference", "verdict"),
    [
        ("PPL rare", (100.0, 80.0), -20.0, BETTER),
        ("PPL rare", (100.0, 100.9), 0.9, SAME),
        ("PPL rare", (100.0, 101.1), 1.1, WORSE),
        ("Uniq total", (50, 60), 20.0, BETTER),
        ("IsoScore", (0.5, 0.8), 0.3, BETTER),
        ("S(W)", (0.3, -0.1), -0.4, BETTER),
        ("S(W)", (0.1, -0.3), -0.4, WORSE),
        ("S(W)", (0.3, -0.301), -0.601, SAME),  # on the other side of 0, as far away
        ("cos(rare, frequent)", (0.5, 0.8), 0.3, ""),
        ("Rep (%)", (30.0, 10.0), -20.0, BETTER),  # nearer to the 5 of the human texts
        ("Rep (%)", (6.0, 0.0), -6.0, WORSE),
        ("Rep (%)", (2.0, 8.01), 6.01, SAME),
    ],
)
def test_differences(title, values, difference, verdict):
    result = column(title, {"mle": values[0], "agg": values[1], "human": 5.0})
    found = PAIR.values(result, 0)
    assert found["agg"].difference == pytest.approx(difference) and found["agg"].verdict == verdict
    assert found["mle"].difference is None and found["mle"].verdict == ""
    best = {WORSE: ["mle"], BETTER: ["agg"], "": [], SAME: ["mle"]}[verdict]
    assert [name for name, value in found.items() if value.is_best] == best


def test_seeds_decide_what_is_the_same():
    """Two standard errors of the difference, 2 · sd · √(1/3 + 1/3), with the larger deviation of the two."""
    models = [Model("mle", ("m1", "m2", "m3")), Model("agg", ("a1", "a2", "a3"))]
    comparison = Comparison(models, models[0])
    for shift, verdict in ((-1.5, SAME), (-1.7, BETTER)):
        mle, agg = (99.0, 100.0, 101.0), (99.5 + shift, 100 + shift, 100.5 + shift)
        result = column("PPL total", dict(zip(("m1", "m2", "m3", "a1", "a2", "a3"), mle + agg, strict=True)), digits=1)
        found = comparison.values(result, 0)
        assert found["mle"].deviation == statistics.stdev(mle) and found["agg"].verdict == verdict
    (row,) = comparison.table(result).rows
    assert row[0].better == "lower is better" and row[1].text == "100.0 ± 1.0" and not row[1].note
    assert (row[2].text, row[2].note, row[2].best) == ("98.3 ± 0.5", "−1.7%", True)
    assert comparison.table(result).header == ["", "mle (3 seeds, baseline)", "agg (3 seeds)"]


def test_a_count_is_a_whole_number():
    (row,) = PAIR.table(column("Uniq", {"mle": 1234, "agg": 1300, "human": 2000}, unit="tokens")).rows
    assert (row[1].text, row[2].text, row[3]) == ("1,234", "1,300", "2,000")


def test_a_value_that_is_not_defined():
    result = column("IsoScore rare", {"mle": None, "agg": 0.5, "human": None}, digits=3)
    (row,) = PAIR.table(result).rows
    assert (row[1].text, row[2].text, row[2].note, row[3]) == (None, "0.500", "", None)


def test_the_verdict_in_words():
    rows = {"mle": [100.0, 900.0, 0.5], "agg": [100.5, 600.0, 0.75], "human": [None] * 3}
    titles = ("PPL total", "PPL rare", "IsoScore")
    result = Result([Column(title) for title in titles], rows, "s")
    (verdict,) = PAIR.verdicts([result], titles)
    assert verdict.title == "agg against mle (baseline)"
    assert verdict.sentence == (
        "Compared with mle, agg predicts tokens about as well (PPL total +0.5%), rare tokens better (PPL rare −33.3%) "
        "and uses more dimensions (IsoScore +0.25)."
    )
    assert verdict.lists[BETTER] == ["PPL rare −33.3% (900.00 → 600.00)", "IsoScore +0.25 (0.50 → 0.75)"]
    assert verdict.lists[SAME] == ["PPL total +0.5% (100.00 → 100.50)"] and verdict.lists[WORSE] == []


def test_groups_in_words():
    assert "first 30%" in groups_in_words(Result([], {}, "a|groups:30%/50%/20%-of-types|b"))
    assert "1e-5" in groups_in_words(Result([], {}, "a|groups:1e-05/1e-06-of-tokens,target-side"))
    assert groups_in_words(Result([], {}, "a")) == ""


def test_measures_have_names_of_their_own():
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)
    assert measure_of(Column("PPL")) is None and measure_of(Column("pairs", "Spearman × 100")).name == "Spearman × 100"
    assert measure_of(Column("Uniq", "tokens")).name == "Uniq (texts)"
    assert {measure_of(Column(f"I(W−μ){end}")).name for end in ("", " rare")} == {"I(W−μ)"}
