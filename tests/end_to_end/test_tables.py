"""The scripts of tables and figures, with few updates: each ends in its tables and pictures. Rows
that differ in options alone are left out; `test_reproduce.py` composes the configurations of
all."""

import json
import re
import shutil

import pytest

from agg_fairseq.checkpoints import Checkpoint
from tests.conftest import documentation, sentence_pairs, table_cells, write_lines
from tests.reproducing import LM, MT, PROGRAMS, SCRIPTS, rows

pytestmark = pytest.mark.slow
AWD = ("optimization.max_update=4", "model.decoder_embed_dim=8", "model.decoder_hidden_size=8")
FORTY = (*LM, "optimization.max_update=40", "checkpoint.save_interval_updates=5")
FROZEN = (*MT, "criterion.freeze_below=0.01")  # in a corpus of 60 words
PAPERS = {  # options, models ("": all), pictures, and a line with a number of the paper
    "wikitext103/agg-tables-1-2": [
        (FORTY, "study-mle study-freeze-b early until-105", 2, r"PPL rare .*813\.76"),
    ],
    "wikitext103/agg-table-3": [(LM, "mle agg", 2, r"Uniq total .*13143")],
    "wikitext103/agg-tables-4-8-9": [
        (LM, "mle ul-agg no-g2 alpha-0.01 alpha-0.05 agg-early", 2, r"PPL rare .*385\.6"),
    ],
    "wikitext103/agps-table-4": [(LM, "words-cosreg words-agps", 0, r"words-agps .*18\.44")],
    "wikitext103/f2-tables-1-2": [(LM, "f2-mle f2-face f2", 1, r"Table 4 .*5\.3")],
    "wikitext103/f2-tables-3-8": [
        (LM, "f2-mle f2 f2-transfer f2-equal-frequency-2 f2-equal-token-4", 1, r".*76\.1")
    ],
    "wikitext2/cosreg-table-1": [(AWD, "awd-cosreg awd-cosreg-finetune", 1, r"awd-mle .*69\.1")],
    "wmt14_en_de/agg-table-7": [(MT, "base-adv base-agg", 0, r"base-mle .*27\.30")],
    "wmt14_en_de/agps-tables-1-3": [
        (FROZEN, "agps-base-freeze agps-until", 3, r"cosreg-base-mle .*27\.3"),
        ((*MT, "optimization.max_update=40"), "agps-early", 1, ""),
        ((*MT, "criterion.agps_rare_rank=20"), "agps-base-agps", 0, r"agps-base-agps .*28\.61"),
    ],
    "wmt14_en_de/cosreg-table-2": [
        (MT, "cosreg-base-mle cosreg-base-cosreg cosreg-de-en-mle", 3, r"cosreg-base-mle .*27\.30")
    ],
}  # fmt: skip
OURS = {
    "cures": "mle bias-fixed-agg coupled-adam",
    "second-moments": "mle frequent-0.999 amsgrad balanced-pushes",
    "large-vocabulary": "mle larger",
    "larger": "mle w-0.999",
    "f2": "mle f2",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def write_splits(folder, lines, *sizes, suffix=""):
    """Writes files of so many lines, one after another, for train, valid and test."""
    folder.mkdir(parents=True)
    for split, size in zip(("train", "valid", "test"), sizes, strict=True):
        write_lines(folder / f"{split}{suffix}", lines[:size])
        lines = lines[size:]
    return folder


@pytest.fixture(scope="module")
def words(clone, tmp_path_factory):
    """A text prepared in words: enough for the ranks of AGPS."""
    folder = tmp_path_factory.mktemp("prepared")
    text, output = write_splits(folder / "text", documentation(), 300, 20, 40), folder / "words"
    clone.run("text/prepare.sh", "--from", text, "--tokenizer", "words", "--output", output)
    return output


@pytest.fixture(scope="module")
def similar(tmp_path_factory):
    folder = tmp_path_factory.mktemp("similar")
    (folder / "word-similarity").mkdir()
    for name in ("MEN", "WS353", "RG65", "RW"):
        lines = "the\tof\t3", "and\tin\t1", "to\tof\t2"
        write_lines(folder / "word-similarity" / f"{name}.txt", lines)
    return folder


@pytest.fixture(scope="module")
def pairs(mt_data, tmp_path_factory):
    """What prepare.sh leaves of a corpus: binarized, and with the plain text of its test split."""
    folder = tmp_path_factory.mktemp("prepared")
    shutil.copytree(mt_data, folder / "data-bin")
    (folder / "manifest.json").write_text(json.dumps({"corpus": "zipf", "bpe": {"kind": "words"}}))
    (folder / "reference").mkdir()
    for language in ("en", "de"):
        shutil.copy(mt_data.parent / f"test.{language}", folder / "reference")
    return folder


@pytest.mark.parametrize("name", PAPERS)
def test_tables_and_figures_of_papers(clone, runs, words, pairs, similar, name):
    """Two trainings side by side, but for those that start from another one."""
    given = {"SIZE": "tiny", "RUNS": runs, "JOBS": 2, "AGG_DATA": similar, "DATA": words}
    if name.startswith("wmt"):
        given |= {"DATA": pairs, "WORDS": "t3"}
    for options, models, pictures, line in PAPERS[name]:
        before, chosen = set(runs.glob("*.png")), set(models.split())
        printed = clone.run(f"{name}.sh", *options, MODELS=models, **given).stdout
        new = set(runs.glob("*.png")) - before
        assert len(new) == pictures and all(path.stat().st_size > 1000 for path in new)
        assert re.search(rf"^\| {line} ", printed, re.MULTILINE), printed
        for row in table_cells(printed):
            if row[0] == "":
                titles = row
            for title, cell in zip(titles, row, strict=True):
                if not models or {title, row[0]} & chosen:
                    assert cell != "not run", printed


@pytest.mark.parametrize("name", OURS)
def test_an_experiment_of_ours(clone, words, name, tmp_path):
    given = {"SIZE": "tiny", "RUNS": tmp_path, "DATA": words, "MODELS": OURS[name]}
    printed = clone.run(f"ours/{name}.sh", *LM, **given).stdout
    table, sums = rows(printed), []
    for model in OURS[name].split():
        assert "not run" not in table[model], printed
        sums.append(Checkpoint(tmp_path / model).output_embedding.weight.double().sum().item())
    assert name != "second-moments" or len(set(sums)) == len(sums)


def test_the_demo_by_its_script(clone, words, tmp_path):
    folder = tmp_path / "demo"
    printed = clone.run("ours/demo.sh", *LM, DATA=words, RUNS=folder)
    assert {"mle", "agg", "Δ agg", "mle-beta2-0.999"} < rows(printed.stdout).keys()
    assert f"{folder}/report.html has more." in printed.stdout.splitlines()[-1]
    again = clone.run("ours/demo.sh", *LM, DATA=words, RUNS=folder)
    assert again.stdout == printed.stdout and "training" not in again.stderr
    assert list(tmp_path.iterdir()) == [folder]


def test_fine_tuning_on_another_text(clone, tmp_path):
    models = ("before", "adam", "frozen-absent", "old-10")
    variables = {"RUNS": tmp_path / "runs", "MODELS": " ".join(models), "VOCABULARY": 500}
    variables["DATA"] = write_splits(tmp_path / "old", documentation(), 300, 40, 40)
    new = sentence_pairs(1340)[0][-380:]
    variables["NEW"] = write_splits(tmp_path / "new", new, 300, 40, 40)
    run = clone.run("ours/fine-tuning.sh", *LM, "optimization.max_update=20", **variables)
    titles, moved, total = rows(run.stdout)[""], {}, {}
    for model in models:
        cells = [cell.replace(",", "") for cell in rows(run.stdout)[model]]
        moved[model] = float(cells[titles.index("moved")])
        total[model] = float(cells[titles.index("old text")])
        if model == "adam":
            assert float(cells[-1]) <= float(cells[1])  # with constants
    assert moved["before"] == moved["frozen-absent"] == 0 < moved["adam"]
    assert total["old-10"] < total["adam"]
    assert (tmp_path / "runs" / "trade-off.png").is_file()


def test_multi30k_to_bleu(clone, pairs, tmp_path):
    given = {"DATA": pairs, "RUNS": tmp_path / "runs", "MODELS": "bias-agg-0.3 f2"}
    table = rows(clone.run("ours/multi30k.sh", *MT, **given).stdout)
    assert all(
        0 <= float(table[row][0]) <= 100 for row in ("bias-agg-0.3", "f2", "f2-greedy-class")
    )


def test_the_rule_on_a_text(clone, tmp_path):
    write_splits(tmp_path / "multi30k", documentation(), 1200, 20, 40, suffix=".de")
    variables = {"SIZE": "tiny", "DATA": tmp_path, "RUNS": tmp_path / "runs"}
    *_, smaller, larger = clone.run("ours/rule.sh", **variables).stdout.splitlines()
    assert smaller.startswith("| de/60:unk2 |") and smaller.count("—") < larger.count("—")
    assert clone.run("ours/rule.sh", **variables).stdout.splitlines()[-2:] == [smaller, larger]


def test_optimizers_of_the_output_embedding(clone, tmp_path):
    """Gradient descent does not favor pushes, and the step of Muon has no scale for each entry."""
    write_splits(tmp_path / "multi30k", documentation(), 1200, 100, 100, suffix=".de")
    given = {"SIZE": "tiny", "DATA": tmp_path, "RUNS": tmp_path / "runs"}
    given["MODELS"] = "adamw-0.98-rest-muon sgd muon"
    table = rows(clone.run("ours/optimizers.sh", **given).stdout)
    assert [table[row][-1] for row in ("sgd", "muon")] == ["1.00", "—"]
    assert float(table["adamw-0.98-rest-muon"][0]) > 1
    assert (tmp_path / "runs" / "pushes-and-pulls.png").is_file()
    given["MODELS"] = "64-all 128-all"
    table = rows(clone.run("ours/kinds.sh", **given).stdout)
    assert table["64-all"] != table["128-all"]


def test_every_script_and_program_was_run(clone, request):
    """By the tests above, if all of them were."""
    here = {item.originalname for item in request.session.items if item.path == request.path}
    if not {name for name in globals() if name.startswith("test_")} <= here:
        pytest.skip("only some of the tests of this file were run")
    assert {*SCRIPTS, *PROGRAMS} <= clone.ran
