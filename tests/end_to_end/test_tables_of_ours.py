"""The scripts of our own experiments, with few updates: each ends in its table."""

import json
import shutil

import pytest

from agg_fairseq.checkpoints import Checkpoint
from tests.reproducing import LM, MT, Clone, head_of, rows, words_of_wikitext

pytestmark = pytest.mark.slow
SMALL = tuple(option for option in LM if not option.startswith("model.decoder_layers"))


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return Clone(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def data(clone, shared_data, tmp_path_factory):
    return words_of_wikitext(clone, shared_data, tmp_path_factory.mktemp("prepared"))


def ours(table):
    """Whether each row has numbers."""
    return all(cells[0] and "not run" not in cells for row, cells in table.items() if row and not row.startswith("Δ"))


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("cures", ""),
        ("objectives", ""),
        ("second-moments", "mle w-0.999 frequent-0.999 amsgrad balanced-pushes"),
        ("large-vocabulary", "mle all-0.9999 larger"),
        ("f2", "mle f2 equal-token-4"),
    ],
)
def test_an_experiment(clone, data, name, models, tmp_path):
    """Of long ones some rows; interventions train, each to another model, from their folder as fairseq's user_dir."""
    printed = clone.run(f"ours/{name}.sh", *SMALL, RUNS=tmp_path, DATA=data, MODELS=models).stdout
    table = rows(printed)
    assert ours({row: cells for row, cells in table.items() if not models or row in models.split()})
    if name == "second-moments":
        weights = [Checkpoint(tmp_path / row).output_embedding.weight.double().sum().item() for row in models.split()]
        assert len(set(weights)) == len(weights)


def test_the_demo_by_its_script(clone, data, tmp_path):
    """Two trainings side by side, and nothing outside its folder; then again."""
    options = (
        "optimization.max_update=8",
        "model.decoder_layers=1",
        "checkpoint.save_interval_updates=4",
        "common.log_interval=1",
    )
    printed = clone.run("demo.sh", *options, DATA=data, RUNS=tmp_path / "demo")
    assert {"mle", "agg", "Δ agg", "mle-beta2-0.999"} < rows(printed.stdout).keys()
    assert printed.stdout.splitlines()[-1] == str(tmp_path / "demo" / "report.html")
    for picture in ("projection.png", "singular-values.png", "rare-tokens.png"):
        assert (tmp_path / "demo" / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    again = clone.run("demo.sh", *options, DATA=data, RUNS=tmp_path / "demo")
    assert (
        again.stdout == printed.stdout
        and "training" not in again.stderr
        and list(tmp_path.iterdir()) == [tmp_path / "demo"]
    )


def test_fine_tuning_on_another_text(clone, shared_data, tmp_path):
    """In the tokens of the old one, by the occurrences in the new one; what moves, and what does not; and a picture."""
    splits = ("train", "valid", "test")
    lines = {"train": 800, "valid": 60, "test": 60}
    old = head_of(shared_data / "wikitext-2", tmp_path / "old", [f"wiki.{split}.tokens" for split in splits], lines)
    new = head_of(shared_data / "multi30k", tmp_path / "new", [f"{split}.en" for split in splits], lines)
    for split in splits:
        (new / f"{split}.en").rename(new / split)
    models = ("before", "adam", "frozen-absent", "untied", "old-10", "slow-embedding")
    variables = {"DATA": old, "NEW": new, "RUNS": tmp_path / "runs", "MODELS": " ".join(models), "VOCABULARY": 500}
    options = (*SMALL, "optimization.max_update=20")
    table = rows(clone.run("ours/fine-tuning.sh", *options, **variables).stdout)
    columns = table[""]
    moved = {name: float(table[name][columns.index("moved")]) for name in models}
    assert moved["before"] == moved["frozen-absent"] == 0 < moved["slow-embedding"] < moved["adam"]
    total = {name: float(table[name][columns.index("old text")].replace(",", "")) for name in models}
    assert total["old-10"] < total["adam"]
    without, with_constants = (float(table["adam"][column].replace(",", "")) for column in (1, -1))
    assert with_constants <= without and (tmp_path / "runs" / "trade-off.png").is_file()


def test_multi30k_to_bleu(clone, mt_data, tmp_path):
    """A model with options of its own, and both ways to decode the factorized layer."""
    data = tmp_path / "prepared"
    shutil.copytree(mt_data, data / "data-bin")
    (data / "manifest.json").write_text(json.dumps({"corpus": "zipf", "bpe": {"kind": "words"}}))
    (data / "reference").mkdir()
    shutil.copy(mt_data.parent / "test.de", data / "reference" / "test.de")
    models = "mle bias-agg-0.3 f2"
    table = rows(clone.run("ours/multi30k.sh", *MT, DATA=data, RUNS=tmp_path / "runs", MODELS=models).stdout)
    assert all(0 <= float(table[name][0]) <= 100 for name in (*models.split(), "f2-greedy-class"))


def test_the_rule_on_a_text(clone, shared_data, tmp_path):
    variables = {"SIZE": "tiny", "DATA": shared_data, "RUNS": tmp_path / "runs"}
    *_, smaller, larger = clone.run("ours/rule.sh", **variables).stdout.splitlines()
    assert smaller.startswith("| de/60:unk2 |") and smaller.count("|") > larger.count("|")
    assert clone.run("ours/rule.sh", **variables).stdout.splitlines()[-2:] == [smaller, larger]
