import types

import pytest

from agg_fairseq.errors import UserError
from agg_fairseq.measures import MEASURES
from agg_fairseq.report.comparison import BETTER, SAME, WORSE, Comparison
from agg_fairseq.result import Result

PAIR = Comparison({"mle": {"1": "mle"}, "agg": {"1": "agg"}}, "mle")


def run(name, seed, **options):
    state = {"cfg": {"common": {"seed": seed}, "criterion": {"_name": "agg", **options}}}
    return types.SimpleNamespace(name=name, checkpoint=types.SimpleNamespace(state=state))


def of_measure(measure, key, rows):
    return Result(
        {name: {measure: {key: value} if key else value} for name, value in rows.items()}, {measure: [key]}, {}
    )


def test_runs_of_other_seeds_are_one_model():
    runs = [run("mle-1", 1), run("agg-1", 1, a=2), run("mle-2", 2), run("agg-2", 2, a=2), run("again", 1)]
    comparison = Comparison.of_runs(runs)
    expected = {"mle": {"1": "mle-1", "2": "mle-2"}, "agg": {"1": "agg-1", "2": "agg-2"}, "again": {"1": "again"}}
    assert comparison.models == expected
    assert comparison.title(comparison.baseline) == "mle (2 seeds, baseline)"
    assert Comparison.of_runs(runs, "agg-2").baseline == Comparison.of_runs(runs, "agg").baseline == "agg"
    with pytest.raises(UserError, match="--baseline: found 'x'; expected the name of a run: mle-1, agg-1"):
        Comparison.of_runs(runs, "x")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("mle-seed-1", "mle-seed-2"), "mle"),
        (("seed-1/mle", "seed-2/mle"), "mle"),
        (("base_s1", "base_s12"), "base"),
        (("1", "2"), "1"),
        (("loss1", "loss2"), "loss"),
        (("a", "b"), "a"),
    ],
)
def test_the_name_of_several_seeds(names, expected):
    assert list(Comparison.of_runs([run(name, seed) for seed, name in enumerate(names)]).models) == [expected]


@pytest.mark.parametrize(
    ("measure", "values", "difference", "verdict"),
    [
        (("perplexity", "rare"), (100.0, 80.0), -20.0, BETTER),
        (("perplexity", "rare"), (100.0, 100.9), 0.9, SAME),
        (("perplexity", "rare"), (100.0, 101.1), 1.1, WORSE),
        (("unique_predictions", "total"), (50, 60), 20.0, BETTER),
        (("isoscore", "total"), (0.5, 0.8), 0.3, BETTER),
        (("mean_cosine", "total"), (0.3, -0.1), -0.4, BETTER),
        (("mean_cosine", "total"), (0.1, -0.3), -0.4, WORSE),
        (("mean_cosine", "total"), (0.3, -0.301), -0.601, SAME),  # on the other side of 0, as far away
        (("mean_cosine", "total"), (0.01, 0.0104), 0.0004, SAME),  # less than half a unit of the last decimal
        (("rare_frequent_cosine", ""), (0.5, 0.8), 0.3, ""),
        (("repetition", ""), (0.3, 0.1), -20.0, BETTER),  # nearer to the 5 of the human texts
        (("repetition", ""), (0.06, 0.0), -6.0, WORSE),
        (("repetition", ""), (0.02, 0.0801), 6.01, SAME),
    ],
)
def test_changes_of_one_seed(measure, values, difference, verdict):
    result = of_measure(*measure, {"mle": values[0], "agg": values[1], "human": 0.05})
    found = PAIR.compare(result, *measure)
    assert found["agg"].change.mean == pytest.approx(difference) and found["agg"].verdict == verdict
    assert found["mle"].change is None and found["mle"].verdict == ""
    best = {WORSE: ["mle"], BETTER: ["agg"], "": [], SAME: ["mle"]}[verdict]
    assert [name for name, value in found.items() if value.is_best] == best


def seeds(mle, agg):
    models = {name: {seed: f"{name}{seed}" for seed in of_seed} for name, of_seed in (("m", mle), ("a", agg))}
    rows = {f"m{seed}": value for seed, value in mle.items()} | {f"a{seed}": value for seed, value in agg.items()}
    return Comparison(models, "m"), of_measure("perplexity", "total", rows)


@pytest.mark.parametrize(
    ("mle", "agg", "verdict"),
    [
        # Paired: changes of −0.9, −1.0 and −1.1 are clear, though the seeds themselves differ by far more.
        ({1: 90.0, 2: 100.0, 3: 110.0}, {1: 89.1, 2: 99.0, 3: 108.9}, BETTER),
        ({1: 90.0, 2: 100.0, 3: 110.0}, {1: 87.0, 2: 99.0, 3: 110.9}, SAME),
        # Other seeds: two standard errors, 2 · sd · √(1/3 + 1/3), with the larger deviation of the two.
        ({1: 99.0, 2: 100.0, 3: 101.0}, {4: 98.0, 5: 98.5, 6: 99.0}, SAME),
        ({1: 99.0, 2: 100.0, 3: 101.0}, {4: 97.8, 5: 98.3, 6: 98.8}, BETTER),
        # A single seed beside several: 2 · sd · √(1/3 + 1).
        ({1: 99.0, 2: 100.0, 3: 101.0}, {1: 102.2}, SAME),
        ({1: 99.0, 2: 100.0, 3: 101.0}, {1: 102.4}, WORSE),
    ],
)
def test_seeds_decide_what_is_clear(mle, agg, verdict):
    comparison, result = seeds(mle, agg)
    assert comparison.compare(result, "perplexity", "total")["a"].verdict == verdict


def test_the_table_of_several_seeds():
    comparison, result = seeds({1: 99.0, 2: 100.0, 3: 101.0}, {1: 97.5, 2: 98.0, 3: 98.5})
    table = comparison.table(result)
    assert table.header == ["", "m (3 seeds, baseline)", "a (3 seeds)"]
    (row,) = table.rows
    assert row[0].measure.better == "lower is better" and row[1].text == "100.00 ± 1.00" and not row[1].note
    assert (row[2].text, row[2].note, row[2].is_best) == ("98.00 ± 0.50", "−2.0%", True)


def test_counts_and_undefined_values():
    (row,) = PAIR.table(of_measure("unique_tokens", "", {"mle": 1234, "agg": 1300, "human": 2000})).rows
    assert (row[1].text, row[2].text, row[3]) == ("1,234", "1,300", "2,000")
    (row,) = PAIR.table(of_measure("isoscore", "rare", {"mle": None, "agg": 0.5, "human": None})).rows
    assert (row[1], row[2].text, row[2].note, row[3]) == (None, "0.500", "", None)


def test_the_verdict():
    rows = {
        name: {"perplexity": {"total": total, "rare": rare}, "isoscore": {"total": isoscore}}
        for name, total, rare, isoscore in (("mle", 100.0, 900.0, 0.5), ("agg", 100.5, 600.0, 0.75))
    }
    columns = {"perplexity": ["total", "rare"], "isoscore": ["total"]}
    isotropy = of_measure("isoscore", "total", {"mle": 0.0, "agg": 0.0})  # the first result that has a measure counts
    (verdict,) = PAIR.verdicts([Result(rows, columns, {}), isotropy], {**columns, "bleu": [""]})
    assert verdict.title == "agg against mle (baseline)"
    assert verdict.lists[BETTER] == ["PPL rare −33.3% (900.00 → 600.00)", "IsoScore +0.250 (0.500 → 0.750)"]
    assert verdict.lists[SAME] == ["PPL total +0.5% (100.00 → 100.50)"] and verdict.lists[WORSE] == []


def test_terms_of_the_glossary_are_distinct():
    explained = [measure.heading for measure in MEASURES.values() if measure.meaning]
    assert len(set(explained)) == len(explained) > 20
