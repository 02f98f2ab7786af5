"""The evaluations as they are used from a notebook, and their JSON."""

import json
import re
from dataclasses import replace
from pathlib import Path

from agg_fairseq import evaluation
from agg_fairseq.checkpoints import open_models
from agg_fairseq.evaluation import BinarizedText
from agg_fairseq.result import SCHEMA
from tests.conftest import ROOT, write_lines
from tests.generate_logs import sentence

TYPES = {str: "text", bool: "flag", int: "number", float: "number", type(None): "null"}


def shape(value):
    """The names in a JSON value by the types of what they name, as text; of a list, those of its
    first item."""
    if isinstance(value, list):
        return f"[{shape(value[0]) if value else ''}]"
    if not isinstance(value, dict):
        return TYPES[type(value)]
    names = {}
    for name, item in value.items():
        if name != "criterion":
            names.setdefault(shape(item), []).append(name)
    return "{" + "; ".join(f"{kind}: {', '.join(listed)}" for kind, listed in names.items()) + "}"


def test_the_json_is_as_documented(lm_runs, lm_data, tmp_path):
    """json_schema.json has the names of settings, and the names and types of values."""
    run, text = open_models([lm_runs / "mle"]), BinarizedText(lm_data, "valid")
    texts, pairs, log = (tmp_path / name for name in ("t.jsonl", "pairs.txt", "log"))
    pairs.write_text("w0\tw1\t3\nw2\tw3\t1\nw4\tw5\t2\n")
    write_lines(log, sentence(0, "a b c d", [(-1, "a b c d")]))
    generated = evaluation.generate_texts(run["mle"], lm_data, texts, prefix_length=5, length=5)
    results = {
        "perplexity": evaluation.perplexity(run, text, calibrate=BinarizedText(lm_data)),
        "isotropy": evaluation.isotropy(run, lm_data),
        "neighbors": evaluation.neighbors(run, lm_data, words=["w3"], topk=2),
        "word_similarity": evaluation.word_similarity(run, lm_data, datasets=[pairs]),
        "group_shares": evaluation.group_shares(lm_data, tokens_per_update=64),
        "generate_texts": replace(generated, rows={"t": generated[str(texts)]}),
        "text_metrics": evaluation.text_metrics({"t": texts}, lm_data),
        "bleu": evaluation.bleu({"log": log}),
    }
    found = {"schema": SCHEMA, "json": {}}
    for name, result in results.items():
        parts = json.loads(json.dumps(result.json()))
        assert {*parts} == {*"signature settings version schema labels columns facts rows".split()}
        found["json"][name] = {
            "settings": ", ".join(parts["settings"]),
            "facts": shape(parts["facts"]),
            "rows": shape(parts["rows"]),
        }
    path, new = Path(__file__).with_name("json_schema.json"), tmp_path / "json_schema.json"
    new.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert found == json.loads(path.read_text()), f"if a name or type differs, raise SCHEMA; {new}"


def test_the_page_as_it_is_pasted(lm_runs, lm_data, tmp_path, monkeypatch, capsys):
    """The section "From Python" of docs/evaluation.md, for a word that this corpus has."""
    page = (ROOT / "docs" / "evaluation.md").read_text()
    blocks = re.findall(r"```python\n([^>].*?)```", page, re.S)
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "runs").symlink_to(lm_runs)
    (tmp_path / "data-bin" / "wikitext-2").symlink_to(lm_data)
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks).replace("river", "w3"), {})
    assert "| human |" in capsys.readouterr().out and (tmp_path / "agg.jsonl").is_file()
