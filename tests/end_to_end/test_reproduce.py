"""scripts/reproduce.sh at --scale tiny: what is done once, what is refused, several seeds, and our own experiments."""

import json
import shutil
from dataclasses import replace
from functools import wraps

import pytest

from agg_fairseq.checkpoints import Checkpoint
from agg_fairseq.errors import UserError
from scripts.data import same_tokens
from scripts.experiments import entries
from scripts.experiments.entries import OURS
from tests.conftest import ROOT, run_command
from tests.reproducing import LM, MT, head_of, reproduce, rows

NEW, FINE_TUNED = ("train.en", "valid.en", "test.en"), ("adam", "frozen-absent", "slow-embedding", "untied")


@pytest.fixture(scope="module")
def table_3(prepared_data, tmp_path_factory):
    """The output folder of agg-3, its options, and what was printed."""
    options = ("--scale", "tiny", "--data", prepared_data, "--output", tmp_path_factory.mktemp("lm") / "runs", *LM)
    return options[5], options, reproduce("agg-3", *options)


@pytest.mark.slow
def test_table_3_has_the_papers_numbers_beside_ours(table_3):
    output, _, printed = table_3
    table = rows(printed.stdout)
    assert table[""] == ["MLE, paper", "MLE", "AGG, paper", "AGG", "Human, paper", "Human"]
    assert table["PPL Rare"][0] == "438.67" and table["PPL Rare"][2] == "75.39" and table["PPL Rare"][4:] == ["—", "—"]
    assert table["Uniq Total"][4] == "18920" and 0 < int(table["Uniq Total"][5]) <= 64
    assert all(float(table["PPL Total"][column].replace(",", "")) > 1 for column in (1, 3))
    kept = json.loads((output / "tables" / "agg-3.json").read_text())
    assert [row["method"] for row in kept["rows"]] == ["MLE", "AGG", "Human"]
    assert (output / "tables" / "agg-3.md").read_text() == printed.stdout


@pytest.mark.slow
def test_what_is_done_is_not_done_again_and_other_settings_are_refused(table_3, prepared_data, tmp_path):
    """Neither trainings nor measures; of a corpus that has moved, and for another table, no trainings."""
    _, options, first = table_3
    again = reproduce("agg-3", *options)
    assert again.stdout == first.stdout and "training" not in again.stderr and "measuring" not in again.stderr
    moved = shutil.copytree(prepared_data, tmp_path / "moved")
    again = reproduce("agg-3", *options, "--data", moved)
    assert again.stdout == first.stdout and "training" not in again.stderr
    table = rows(reproduce("agg-8", *options, "--show").stdout)
    assert table["no g1"][1] == "not run" and table["no g1"][0] == "15.48"
    assert table["AGG"][1] == rows(first.stdout)["PPL Total"][3]
    (moved / "manifest.json").write_text('{"corpus": "another", "bpe": {"kind": "words"}}')
    for more, said in ((("--data", moved), "(corpus: "), (("--seed", "2"), "(overrides: ")):
        result = reproduce("agg-3", *options, *more, check=False)
        assert result.returncode == 2 and f"other settings {said}" in result.stderr.splitlines()[-1]


@pytest.mark.slow
def test_several_entries_and_seeds(prepared_data, tmp_path):
    """A folder per seed; each model once, though both entries have it."""
    options = ("--scale", "tiny", "--seeds", "1", "2", "--data", prepared_data, "--output", tmp_path)
    printed = reproduce("agg-10", "agg-figure-3", *options, *LM)
    assert {path.name for path in tmp_path.iterdir()} == {"seed-1", "seed-2", "tables"}
    trained = [line for line in printed.stderr.splitlines() if line.startswith("reproduce: training ")]
    assert len(trained) == 2 * 2 == len(set(trained))
    mean, deviation = rows(printed.stdout)["AGG"][-1].split(" ± ")
    numbers = json.loads((tmp_path / "tables" / "agg-10.json").read_text())["rows"][1]["I(W) Rare"]
    first, second = numbers["1"], numbers["2"]
    assert first != second and mean == f"{(first + second) / 2:.3f}"
    assert deviation == f"{abs(first - second) / 2**0.5:.3f}" and "over n = 2 seeds: 1, 2." in printed.stdout
    pictures = {path.name for path in (tmp_path / "tables").glob("*.png")}
    assert len(pictures) == 2 * 2 and "agg-figure-3-projection-seed-2.png" in pictures


@pytest.mark.slow
def test_a_training_that_fails_is_named_and_starts_no_other(prepared_data, tmp_path):
    options = ("--scale", "tiny", "--data", prepared_data, "--output", tmp_path, *LM, "criterion.label_smoothing=7")
    failed = reproduce("agg-8", *options, check=False)
    assert failed.returncode == 2 and "training agg-mle failed (status 2); its output is in" in failed.stderr
    assert failed.stderr.count("reproduce: training ") == 1 and not failed.stdout


@pytest.mark.slow
def test_the_demo_from_its_first_line(prepared_data, tmp_path):
    """By its script, two trainings side by side, in a folder of any name, and nothing beside it; then again."""
    name = "out/-o '\"`touch marker`$(touch marker);,[a]{b}=\\*?!é "
    options = ("--updates", "8", f"--output={name}", "model.decoder_layers=1")
    command = ("bash", ROOT / "scripts" / "demo.sh", "--data", prepared_data, *options, "--jobs", "2")
    first = run_command(*command, cwd=tmp_path)
    output = tmp_path / name
    assert list(tmp_path.iterdir()) == [output.parent] and list(output.parent.iterdir()) == [output]
    assert first.stdout.splitlines()[-1] == str(output / "report.html") and (output / "report.html").is_file()
    assert {"mle", "agg", "mle-beta2-0.999"} < rows(first.stdout).keys()
    for picture in ("projection.png", "singular-values.png", "rare-tokens.png"):
        assert (output / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(list((output / "mle").glob("checkpoint_*_*.pt"))) == 1  # of which an interrupted training goes on
    again = reproduce("demo", "--data", prepared_data, *options, cwd=tmp_path)
    assert "mle is trained already" in again.stderr and again.stdout == first.stdout


@pytest.mark.slow
def test_the_factorized_layer_on_text(shared_data, tmp_path, monkeypatch):
    models = entries.F2_MODELS
    fewer = {name: models[name] for name in ("mle", "f2", "equal-token-4")}
    monkeypatch.setattr(entries, "F2_MODELS", fewer)
    names = [f"wiki.{split}.tokens" for split in ("train", "valid", "test")]
    text = head_of(shared_data / "wikitext-2", tmp_path / "text", names, {"train": 800, "valid": 40, "test": 50})
    small = [override for override in LM if override.startswith("model.")]
    printed = reproduce("f2", "--data", text, "--output", tmp_path / "out", "--updates", "4", *small)
    assert printed.stdout.count("| human ") == 2 and printed.stderr.count("generate texts") == 7
    assert "| f2-top3-decoupled " in printed.stdout and "| PPL total " in printed.stdout
    measured = json.loads((tmp_path / "out" / "text-metrics.json").read_text())["rows"]
    assert [row["method"] for row in measured][-3:] == ["f2-greedy", "f2-greedy-decoupled", "human"]


@pytest.mark.slow
def test_interventions_outside_the_package(prepared_data, tmp_path, monkeypatch):
    """They train, each to another model, from their folder as fairseq's user_dir; a table of their own."""
    monkeypatch.setattr(entries, "SECOND_MOMENTS", {"mle": ()})
    small = [override for override in LM if override.startswith("model.")]
    options = ("--data", prepared_data, "--output", tmp_path / "out", "--updates", "20", *small)
    assert {"mle", *entries.PROBES} < rows(reproduce("second-moments", *options).stdout).keys()
    models = [Checkpoint(tmp_path / "out" / name) for name in ("mle", *entries.PROBES)]
    sums = {model.output_embedding.weight.double().sum().item() for model in models}
    assert len(sums) == len(models)


@pytest.mark.slow
def test_fine_tuning_on_another_text(shared_data, tmp_path, monkeypatch):
    """In the tokens of the old one, by the occurrences in the new one; what moves, and what does not; and a picture."""
    models = entries.FINE_TUNING
    monkeypatch.setattr(entries, "FINE_TUNING", {name: models[name] for name in FINE_TUNED})
    names = [f"wiki.{split}.tokens" for split in ("train", "valid", "test")]
    text = head_of(shared_data / "wikitext-2", tmp_path / "text", names, {"train": 800, "valid": 60, "test": 60})
    new = head_of(shared_data / "multi30k", tmp_path / "new", NEW, {"train": 600, "valid": 60, "test": 60})
    small = [override for override in LM if override.startswith("model.")]
    options = ("--data", text, "--output", tmp_path / "out", "--updates", "60", "--vocabulary", "500", *small)
    table = rows(reproduce("fine-tuning", *options, "--new-text", *(new / name for name in NEW)).stdout)
    columns = table[""]
    moved = {name: float(table[name][columns.index("moved")]) for name in ("before", *FINE_TUNED)}
    assert moved["before"] == moved["frozen-absent"] == 0 < moved["slow-embedding"] < moved["adam"]
    before, untied = (
        Checkpoint(tmp_path / "out" / name).state["model"]["decoder.embed_tokens.weight"]
        for name in ("before", "untied")
    )
    absent = (before - untied).norm(dim=1) < 1e-4 * before.norm(dim=1)  # as inputs: by the weight decay alone
    assert 20 < absent.sum() < 480 and moved["untied"] > 0
    assert columns[-3:] == ["new text, 40%", "old text, 40%", "old text at new + 1%"]
    without, with_constants = (float(table["adam"][column].replace(",", "")) for column in (1, -1))
    assert with_constants <= without
    assert (tmp_path / "out" / "trade-off.png").is_file()


@pytest.mark.slow
def test_multi30k_from_text_to_bleu(shared_data, tmp_path, monkeypatch):
    """A model with options of its own, and both ways to decode the factorized layer, from raw text to BLEU."""
    models, entry = ("bias-agg-0.3", "f2", "f2-greedy-class"), OURS["multi30k"]

    @wraps(entry.build)
    def build(**options):
        (experiment,) = entry.build(**options)
        return [replace(experiment, methods=[one for one in experiment.methods if one.label in models])]

    monkeypatch.setitem(OURS, "multi30k", replace(entry, build=build))
    names = [f"{split}.{language}" for split in ("train", "valid", "test") for language in ("en", "de")]
    text = head_of(shared_data / "multi30k", tmp_path / "text", names, {"train": 300, "valid": 10, "test": 3})
    small = [override for override in MT if override.startswith("model.")]
    options = ("--data", text, "--output", tmp_path / "out", "--updates", "5", "--vocabulary", "500")
    printed = reproduce("multi30k", *options, *small)
    table = rows(printed.stdout)
    assert len(table) == 1 + len(models) and "nrefs:1|case:mixed" in printed.stdout
    assert all(0 <= float(table[name][0]) <= 100 and 0 <= float(table[name][3]) <= 1 for name in models)
    for name in ("f2/generate.log", "f2/generate-greedy-class.log"):
        log = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert sum(line.startswith("D-") for line in log.splitlines()) == 3


def test_a_dry_run_prints_the_trainings_and_starts_none(prepared_data, tmp_path):
    """Without GPUs; a table of the papers says what it takes."""
    options = ("--scale", "tiny", "--data", prepared_data, "--output", tmp_path / "new", "--dry-run")
    printed = reproduce("agg-6", *options)
    trainings = [line for line in printed.stdout.splitlines() if not line.startswith("#")]
    assert len(trainings) == 2 and all("scripts/train.sh" in line and "size=tiny" in line for line in trainings)
    assert "# agg-6: 2 trainings on a CPU" in printed.stdout
    printed = reproduce("agg-3", "agps-3", "--dry-run", "--gpus", "4", "--output", tmp_path / "new", cwd=tmp_path)
    lines = printed.stdout.splitlines()
    assert sum(line.startswith(f"env PYTHONPATH={ROOT} ") and "scripts.data." in line for line in lines) == 2
    assert sum("/scripts/train.sh " in line and line.endswith(" --gpus 4") for line in lines) == 5
    assert any(line.startswith("# agg-3: 2 trainings, 38 GPU hours, 9.5 hours on 4 GPUs; ") for line in lines)
    assert lines[-1].startswith("# The published scale has not been run with this package yet.")
    assert not (tmp_path / "new").exists()


MISTAKES = [
    (("agg-3", "--new-text", *NEW), "--new-text: found it with agg-3; expected fine-tuning alone"),
    (("fine-tuning", "--new-text", *NEW), "--new-text: found no file train.en; expected the training"),
    (("agg-12",), "found the entry 'agg-12'; expected one that --list prints"),
    ((), "found no ENTRY"),
    (("agg-3", "size=small"), "expected --scale, --data, --output or --seeds for that"),
    (("agg-7", "--scale", "tiny", "--output", "out"), "found no --data; expected a folder of"),
    (("agg-3", "--data", "/nowhere"), "--data: found no folder /nowhere"),
    (("agg-3", "--updates", "3"), "--updates: found it with agg-3, which cannot take it"),
    (("agg-3", "--seeds", "1", "x"), "--seeds/--seed: found 'x'; expected a whole number from 1"),
    (("demo", "--data", ROOT / "docs"), "found no wiki.train.tokens in"),
    (("demo", "--output", "a:b"), "expected a path without ':'"),
    (("objectives",), "found no --data"),
]


def test_texts_that_cannot_be_prepared_in_the_same_tokens(tmp_path):
    """Of a corpus without a tokenizer, before anything is written; in another encoding."""
    (tmp_path / "manifest.json").write_text('{"bpe": {"kind": "words"}}')
    with pytest.raises(UserError, match="--of: found no tokenizer in .*; expected a corpus of this version"):
        same_tokens.prepare(tmp_path / "new", tmp_path, ())
    assert not (tmp_path / "new").exists()
    (tmp_path / "manifest.json").write_text('{"bpe": {"kind": "words"}, "tokenizer": "words"}')
    (tmp_path / "latin-1").write_bytes(b"caf\xe9\n")
    with pytest.raises(UserError, match="latin-1: found bytes that are not UTF-8"):
        same_tokens.prepare(tmp_path / "new", tmp_path, [tmp_path / "latin-1"] * 3)


def test_mistakes_are_told_in_one_line(mt_data, tmp_path):
    two = tmp_path / "two"
    two.mkdir()
    (two / "data-bin").symlink_to(mt_data)
    (two / "manifest.json").write_text('{"bpe": {"kind": "words"}, "tokenizer": "words"}')
    moses = "expected {'languages': 2, 'tokenizer': 'moses', 'validation': 'train'}"
    here = tmp_path / "here"
    here.mkdir()
    for arguments, message in (
        *MISTAKES,
        (("agg-3", "--scale", "tiny", "--data", two), "found {'languages': 2}"),
        (("agg-7", "--data", two), moses),
    ):
        result = reproduce(*arguments, check=False, cwd=here)
        assert result.returncode == 2 and message in result.stderr, (arguments, result.stderr)
        assert result.stderr.count("\n") == 1 and not list(here.iterdir())
