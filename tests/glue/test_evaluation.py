"""The evaluations as they are used from a notebook: functions of opened checkpoints that return a
Result."""

import json
import logging
import math
import re
from dataclasses import replace

import pytest

from agg_fairseq import evaluation
from agg_fairseq.checkpoints import open_models
from agg_fairseq.evaluation import BinarizedText
from agg_fairseq.result import SCHEMA
from tests.conftest import ROOT


def shape(value):
    """The names in a JSON value by the types of what they name; of a list, those of its first
    item."""
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    if isinstance(value, dict):
        names = {}
        for name, item in value.items():
            if name != "criterion":
                names.setdefault(line_of(item), []).append(name)
        return {of_type: ", ".join(of_names) for of_type, of_names in names.items()}
    return {str: "text", bool: "flag", int: "number", float: "number", type(None): "null"}[
        type(value)
    ]


def line_of(value):
    """Its shape, as text."""
    return json.dumps(shape(value), ensure_ascii=False).replace('"', "")


def test_the_json_is_as_documented(lm_runs, lm_data, tmp_path):
    """tests/glue/json_schema.json has the names and types in the JSON of the evaluations, for this
    version."""
    run, text = open_models([lm_runs / "mle"]), BinarizedText(lm_data, "valid")
    (tmp_path / "pairs.txt").write_text("w0\tw1\t3\nw2\tw3\t1\nw4\tw5\t2\n")
    (tmp_path / "log").write_text(
        "".join(f"{part}\ta b c d\n" for part in ("S-0", "T-0", "H-0\t-1", "D-0\t-1"))
    )
    generated = evaluation.generate_texts(
        run["mle"], lm_data, tmp_path / "t.jsonl", prefix_length=5, length=5
    )
    results = {
        "perplexity": evaluation.perplexity(run, text, calibrate=BinarizedText(lm_data)),
        "isotropy": evaluation.isotropy(run, lm_data),
        "neighbors": evaluation.neighbors(run, lm_data, words=["w3"], topk=2),
        "word_similarity": evaluation.word_similarity(
            run, lm_data, datasets=[tmp_path / "pairs.txt"]
        ),
        "group_shares": evaluation.group_shares(lm_data, tokens_per_update=64),
        "generate_texts": replace(generated, rows={"t": generated[str(tmp_path / "t.jsonl")]}),
        "text_metrics": evaluation.text_metrics({"t": tmp_path / "t.jsonl"}, lm_data),
        "bleu": evaluation.bleu({"log": tmp_path / "log"}),
    }
    shapes = {}
    for name, result in results.items():
        parts = json.loads(json.dumps(result.json()))
        of_all = {part: parts.pop(part) for part in ("signature", "version", "schema", "labels")}
        assert shape(of_all) == {
            "text": "signature, version",
            "number": "schema",
            "[text]": "labels",
        }
        shapes[name] = {part: line_of(value) for part, value in parts.items()}
    found = {"schema": SCHEMA, "json": shapes}
    path = ROOT / "tests" / "glue" / "json_schema.json"
    golden = json.loads(path.read_text())
    if found != golden and golden["schema"] != SCHEMA:
        (tmp_path / path.name).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        pytest.fail(f"the version was raised: replace {path} by {tmp_path / path.name}")
    assert found == golden, "names or types changed: raise SCHEMA"


def test_the_page_as_it_is_pasted(lm_runs, lm_data, tmp_path, monkeypatch, capsys):
    """The section "From Python" of docs/evaluation.md, for a word that this corpus has."""
    blocks = re.findall(
        r"```python\n([^>].*?)```", (ROOT / "docs" / "evaluation.md").read_text(), re.S
    )
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "runs").symlink_to(lm_runs)
    (tmp_path / "data-bin" / "wikitext-2").symlink_to(lm_data)
    monkeypatch.chdir(tmp_path)
    try:
        exec("\n".join(blocks).replace("river", "w3"), {})
    finally:
        logging.disable(logging.NOTSET)
    assert "| human |" in capsys.readouterr().out and (tmp_path / "agg.jsonl").is_file()


def test_special_tokens_are_frequent_as_published(lm_runs, lm_data):
    """So that all targets are in a group: the groups' losses make up the total's."""
    run, text = open_models([lm_runs / "mle"]), BinarizedText(lm_data, "valid")
    ours, theirs = (
        evaluation.perplexity(run, text, as_published=option) for option in (False, True)
    )
    assert "types,special-tokens-frequent" in theirs.signature and "special" not in ours.signature
    targets = {
        name: result.facts["targets"] for name, result in (("ours", ours), ("theirs", theirs))
    }
    total = targets["theirs"].pop("total")
    assert total == targets["ours"].pop("total") == sum(targets["theirs"].values())
    assert targets["ours"]["frequent"] < targets["theirs"]["frequent"]
    ppl = theirs["mle"]["perplexity"]
    mean = sum(n * math.log(ppl[group]) for group, n in targets["theirs"].items() if n) / total
    assert math.exp(mean) == pytest.approx(ppl["total"])
