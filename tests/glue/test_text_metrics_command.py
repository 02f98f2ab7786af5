"""The `text-metrics` command, called in this process: the table, the JSON file, and every error."""

import json
from collections import Counter

from tests.commands import cells, read_result, refused, run
from tests.conftest import read_lines, write_lines

REFERENCES = ["a b c", "a b", "a a b"]
CONTINUATIONS = ["a b", "a a", "b c a b c a b c"]


def write_texts(path, continuations=CONTINUATIONS, references=REFERENCES):
    pairs = zip(continuations, references, strict=True)
    lines = [
        json.dumps({"prefix": "p", "continuation": one, "reference": other}) for one, other in pairs
    ]
    write_lines(path, lines)
    return path


def test_text_metrics_of_several_files(tmp_path, capsys):
    """References: a 4, b 3, c 1. Continuations: a 5, b 4, c 3; one of the three ends in `a b c`
    twice."""
    # KLD: 1/2 ln(6/5) + 3/8 ln(9/8) + 1/8 ln(1/2) = 0.0487. MS-Jaccard-1: (4 + 3 + 1) / (5 + 4 + 3)
    # = 2/3. 2-grams: ab 3, aa 1, bc 1 in the references; ab 3, aa 1, bc 3, ca 2 in the
    # continuations: 5/9, and √(2/3 · 5/9).
    path = write_texts(tmp_path / "model.jsonl")
    printed = run(capsys, "text-metrics", path)
    table = cells(printed)
    assert list(table) == ["model", "human"]
    columns = "KLD MSJ-1 MSJ-2 MSJ-3 SB-1 SB-2 SB-3 Dist-1 Dist-2 Dist-3 Rep (%) Uniq"
    assert " ".join(table["human"]) == columns
    assert [table["human"][column] for column in ("KLD", "MSJ-1", "MSJ-3")] == ["—"] * 3
    expected = {"SB-1": "64.7", "SB-2": "58.7", "Dist-1": "88.9", "Rep (%)": "0.00", "Uniq": "3"}
    assert table["human"].items() >= expected.items()
    expected = {"KLD": "0.05", "MSJ-1": "66.7", "MSJ-2": "60.9", "Rep (%)": "33.33", "Uniq": "3"}
    assert table["model"].items() >= expected.items()
    assert "\ntexts:3|tokens:8|" in printed and "|ms-jaccard:counts-per-text,unpadded|" in printed


def test_shares(lm_data, tmp_path, capsys):
    references = read_lines(lm_data.parent / "test")
    references[0] += " never </s>"
    path = write_texts(tmp_path / "m.jsonl", ["w0 w0 never"] * len(references), references)
    target = tmp_path / "o.json"
    printed = run(capsys, "text-metrics", path, "--data", lm_data, "--json", target)
    text = read_lines(lm_data.parent / "train")
    counts = Counter(word for line in text for word in line.split())
    vocabulary = (line.split()[0] for line in read_lines(lm_data / "dict.txt"))
    groups, before, total = {}, 0, sum(counts.values())
    for word in sorted(filter(counts.get, vocabulary), key=lambda word: -counts[word]):
        groups[word] = sum(before >= border / 100 * total for border in (40, 70, 90))
        before += counts[word]
    words = " ".join(references).split()
    found = Counter(map(groups.get, words))
    # with None: `never`, `</s>` and words of the test split alone
    assert groups["w0"] == 0 and len(found) == 5
    human = cells(printed)["human"]
    columns = ("frequent (%)", "medium (%)", "rare (%)", "very rare (%)")
    assert [human[column] for column in columns] == [
        f"{100 * found[i] / len(words):.1f}" for i in range(4)
    ]
    assert [cells(printed)["m"][column] for column in columns] == ["66.7", "0.0", "0.0", "0.0"]
    assert "|groups:40%/30%/20%/10%-of-mass|" in printed
    result = read_result(target)
    assert list(result.facts["groups"]) == ["frequent", "medium", "rare", "very rare"]
    assert sum(result.facts["groups"].values()) == len(groups)


def test_what_is_not_defined_is_empty(lm_data, tmp_path, capsys):
    """Of one text there is no Self-BLEU, and of empty ones there are no frequencies."""
    for continuations, references, empty in (
        (["a", "b"], ["", ""], ["KLD", "MSJ-1", "MSJ-3"]),
        (["a"], ["a b"], ["SB-1", "SB-3"]),
        (["", ""], ["a", "b"], ["KLD", "frequent (%)"]),
    ):
        path = write_texts(tmp_path / "m.jsonl", continuations, references)
        printed = cells(run(capsys, "text-metrics", path, "--data", lm_data))
        assert ("human" in printed) == any(references)
        row = printed["m"]
        assert [row[column] for column in empty] == ["—"] * len(empty)
        assert "—" not in [row[column] for column in ("Dist-1", "Rep (%)", "Uniq")]
        assert ("frequent (%)" in empty) == (row["frequent (%)"] == "—")


def test_text_metrics_refuses_files(tmp_path, capsys):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prefix": "", "continuation": "", "reference": ""}\n{}\n')
    assert "bad.jsonl, line 2: found '{}'; expected JSON of prefix" in refused(
        capsys, "text-metrics", path
    )
    first, second = write_texts(tmp_path / "first.jsonl"), tmp_path / "second.jsonl"
    write_texts(second, CONTINUATIONS, ["a b c", "a b", "x"])
    error = refused(capsys, "text-metrics", first, second)
    assert f"{second}: found other references than in {first}" in error
