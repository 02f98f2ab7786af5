"""scripts/claims.py: the claims of the papers are rows of their tables, and ours are compared."""

import pytest

from agg_fairseq.files import write_json
from agg_fairseq.result import Result, SeedValues
from scripts import claims
from scripts.table import read_table
from tests.conftest import ROOT


@pytest.mark.parametrize("claim", claims.read_claims(), ids=lambda claim: claim["claim"])
def test_claims_are_of_rows_and_columns_of_their_tables(claim):
    _, columns, papers = read_table(ROOT / "scripts" / f"{claim['table']}.tsv")
    assert claim["column"] in columns and claim["sign"] in ("+", "-", "0")
    assert {claim["row"], claim["base"]} - papers.keys() <= {"mle"}
    assert float(claim["least"]) < float(claim["largest"])
    paper, _ = claims.changes(claim, [])
    for change in paper.numbers.values():  # as the paper has it
        signed = change if claim["sign"] == "+" else -change
        assert signed > 0 or claim["sign"] == "0", change


def test_ours_are_compared_with_the_paper_and_the_prediction(tmp_path, capsys):
    for seed, rare in enumerate((40.0, 42.0), start=1):
        for row, value in {"mle": 100.0, "agg": rare}.items():
            columns = {"perplexity": ["rare"]}
            result = Result({row: {"perplexity": {"rare": value}}}, columns, {"split": "test"})
            (tmp_path / str(seed) / row).mkdir(parents=True)
            write_json(tmp_path / str(seed) / row / "ppl.json", result.json())
    claims.main([str(tmp_path / "1"), str(tmp_path / "2")])
    first, *_, summary = capsys.readouterr().out.splitlines()[2:]
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells[1:] == ["−82.8%", "−59.0% ± 1.4", "−85% to −40%", "yes", "yes"]
    assert summary == "40 claims, 1 run: 1 reproduced, 1 as predicted"


@pytest.mark.parametrize(
    "sign, values, is_relative, expected",
    [
        ("+", [1.0], True, "yes"), ("+", [-1.0], True, "no"), ("-", [-2.0, 1.0], True, "unclear"),
        ("-", [-2.0, -1.9], True, "yes"), ("0", [2.9], True, "yes"), ("0", [0.2], False, "no"),
    ],
)  # fmt: skip
def test_a_sign_is_reproduced_beyond_two_standard_errors(sign, values, is_relative, expected):
    ours = SeedValues(dict(enumerate(values)))
    assert claims.is_reproduced(sign, ours, is_relative) == expected
