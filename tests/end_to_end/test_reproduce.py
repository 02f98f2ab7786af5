"""scripts/reproduce.sh at --scale tiny, from data to table, with models of a few updates."""

import json
import os

import pytest

from tests.conftest import ROOT, run_command, zipf_text

SCRIPT = ROOT / "scripts" / "reproduce.sh"
SMALL = (
    "optimization.max_update=6", "checkpoint.save_interval_updates=1", "common.log_interval=1", "dataset.num_workers=0",
    "model.decoder_embed_dim=16", "model.decoder_ffn_embed_dim=16",
)  # fmt: skip
LM = (*SMALL, "model.decoder_layers=1", "model.decoder_input_dim=16", "model.decoder_output_dim=16")
MT = (*SMALL, "model.encoder_embed_dim=16", "model.encoder_ffn_embed_dim=16")


def reproduce(*arguments, check=True, cwd=ROOT):
    return run_command("bash", SCRIPT, *arguments, check=check, cwd=cwd, env={"OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A corpus of 60 words as a prepare.sh would leave it; fairseq needs 8 blocks of 128 tokens in a split."""
    folder, text = tmp_path_factory.mktemp("prepared"), tmp_path_factory.mktemp("text")
    for split, lines in (("train", 600), ("valid", 200), ("test", 200)):
        (text / split).write_text("\n".join(zipf_text(lines, seed=len(split))) + "\n")
    run_command(
        "fairseq-preprocess", "--only-source", "--trainpref", text / "train", "--validpref", text / "valid",
        "--testpref", text / "test", "--destdir", folder / "data-bin",
    )  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps({"corpus": "zipf", "bpe": {"kind": "words"}}))
    return folder


@pytest.fixture(scope="module")
def parallel(tmp_path_factory):
    """A raw parallel corpus in a folder with a space in its name."""
    folder = tmp_path_factory.mktemp("raw") / "two languages"
    folder.mkdir()
    for split, lines in (("train", 400), ("valid", 20), ("test", 20)):
        for language, prefix in (("en", "word"), ("de", "wort")):
            text = "\n".join(zipf_text(lines, seed=len(split), prefix=prefix)) + "\n"
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def table_3(prepared, tmp_path_factory):
    """The output folder of agg-3, and what was printed."""
    output = tmp_path_factory.mktemp("lm") / "runs"
    printed = reproduce("agg-3", "--scale", "tiny", "--data", prepared, "--output", output, *LM)
    return output, printed


def rows(text):
    return {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    }


def test_table_3_has_the_papers_numbers_beside_ours(table_3):
    output, printed = table_3
    table = rows(printed.stdout)
    assert table[""] == ["MLE, paper", "MLE", "AGG, paper", "AGG", "Human, paper", "Human"]
    assert table["PPL Rare"][0] == "438.67" and table["PPL Rare"][2] == "75.39" and table["PPL Rare"][4:] == ["—", "—"]
    assert table["Uniq Total"][4] == "18920" and 0 < int(table["Uniq Total"][5]) <= 64
    assert all(float(table["PPL Total"][column].replace(",", "")) > 1 for column in (1, 3))
    assert all(0 < float(table["I(W) Total"][column]) <= 1 for column in (1, 3))
    assert "eval-lm: split:test" in printed.stdout and "Scale: tiny." in printed.stdout
    kept = json.loads((output / "tables" / "agg-3.json").read_text())
    assert [row["method"] for row in kept["rows"]] == ["MLE", "AGG", "Human"]
    assert (output / "tables" / "agg-3.md").read_text() == printed.stdout
    assert "training agg-mle" in printed.stderr and "6/6" in printed.stderr


def test_what_is_done_is_not_done_again(table_3, prepared):
    """Neither trainings nor measures; another table of the same models finds them."""
    output, first = table_3
    arguments = ("--scale", "tiny", "--data", prepared, "--output", output, *LM)
    again = reproduce("agg-3", *arguments)
    assert again.stdout == first.stdout and "training" not in again.stderr and "measuring" not in again.stderr
    shown = reproduce("agg-8", *arguments, "--show")
    table = rows(shown.stdout)
    assert table["no g1"][1] == "not run" and table["no g1"][0] == "15.48"
    assert table["AGG"][1] == rows(first.stdout)["PPL Total"][3]
    assert "training" not in shown.stderr


def test_a_run_with_other_settings_is_refused(table_3, prepared):
    output, _ = table_3
    result = reproduce(
        "agg-3", "--scale", "tiny", "--data", prepared, "--output", output, *LM, "common.seed=2", check=False
    )
    assert result.returncode == 2 and "holds a model of other settings" in result.stderr.splitlines()[-1]


def test_a_figure_of_the_same_models(table_3, prepared):
    output, _ = table_3
    printed = reproduce("agg-figure-3", "--scale", "tiny", "--data", prepared, "--output", output, *LM)
    pictures = printed.stdout.splitlines()[-2:]
    assert [os.path.basename(path) for path in pictures] == [
        "agg-figure-3-projection.png", "agg-figure-3-singular-values.png",
    ]  # fmt: skip
    assert all(os.path.getsize(path) > 1000 for path in pictures)


def test_table_7_from_raw_text_to_bleu(parallel, tmp_path):
    printed = reproduce(
        "agg-7",
        "--scale",
        "tiny",
        "--data",
        "two languages",
        "--output",
        tmp_path / "ü",
        *MT,
        "optimization.max_update=12",
        cwd=parallel.parent,
    )
    table = rows(printed.stdout)
    assert table[""] == ["BLEU, paper", "BLEU", "sacreBLEU"]
    assert table["AGG base"][0] == "28.70" and table["Adv MLE base"] == ["28.43", "—", "—"]
    assert table["AGG big"] == ["29.81", "not run", "not run"]
    for method in ("Transformer base", "CosReg base", "AGG base"):
        assert all(0 <= float(cell) <= 100 for cell in table[method][1:])
    assert (tmp_path / "ü" / "agg-base-agg" / "averaged.pt").is_file() and "version:2" in printed.stdout


def test_table_1_of_f2_from_training_to_texts(prepared, tmp_path):
    """All five trainings, two of them fine-tuning; texts of 100 tokens from each."""
    printed = reproduce("f2-1", "--scale", "tiny", "--data", prepared, "--output", tmp_path, *LM)
    table = rows(printed.stdout)
    assert len(table) == 14 and table["KLD"][10:] == ["—", "—"] or table["KLD"][-1] == "—"
    assert table["Uniq"][-2:] == ["15.2k", table["Uniq"][-1]] and int(table["Uniq"][-1]) > 10
    assert all(cell != "not run" for row in table.values() for cell in row)
    assert {path.name for path in tmp_path.iterdir()} >= {
        "f2-mle",
        "f2-face",
        "f2-ul-token",
        "f2-ul-token-seq",
        "f2-f2",
    }


def test_a_dry_run_prints_the_trainings_and_starts_none(prepared, tmp_path):
    printed = reproduce(
        "agg-3", "--scale", "tiny", "--data", prepared, "--output", tmp_path / "new", "--dry-run"
    ).stdout
    lines = printed.splitlines()
    assert len(lines) == 2 and all("scripts/train.sh" in line and "size=tiny" in line for line in lines)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("agg-5",), "found the table 'agg-5'; expected one of agg-1, "),
        ((), "found no TABLE"),
        (("agg-3", "max_update"), "expected key=value"),
        (("agg-7", "--scale", "tiny", "--output", "/nowhere"), "found no --data; expected a folder of"),
        (("agg-3", "--data", "/nowhere"), "--data: found no folder /nowhere"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, message):
    result = reproduce(*arguments, check=False)
    assert result.returncode == 2 and message in result.stderr.splitlines()[-1]


def test_all_tables_and_figures_are_listed():
    assert len(reproduce("--list").stdout.splitlines()) == 35
