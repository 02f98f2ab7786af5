"""Tables of the papers: our numbers stand beside theirs."""

import csv
import json
import re
from pathlib import Path

import pytest
from tokenizers import ByteLevelBPETokenizer

from agg_fairseq.errors import UserError
from agg_fairseq.names import HUMAN
from agg_fairseq.result import Result
from scripts.table import main
from scripts.texts import readable
from scripts.wikitext103.f2_table_9 import wins
from tests.conftest import ROOT, read_lines


def read(path):
    lines = [line for line in read_lines(path) if not line.startswith("#")]
    header, *rows = csv.reader(lines, delimiter="\t")
    return header[1:], {row[0]: [cell for cell in row[1:]] for row in rows}


def save(folder, row, file, values, columns):
    (folder / row).mkdir(parents=True, exist_ok=True)
    (folder / row / f"{file}.json").write_text(json.dumps(Result(values, columns, {}).json()))


def test_ours_beside_the_papers_means_over_seeds_and_changes(tmp_path, capsys):
    """By hand: of 100 and 200 the sample deviation is 100/√2; 100 to 110 and 200 to 210 are +10%
    and +5%.

    In percent where the metric is shown so; the human text is in the files of the other rows."""
    table = tmp_path / "t.tsv"
    table.write_text(
        "# Title\n\ta/PPL\tb/SB-2\nmle\t1.5\t-\nagg\t2\nother (quoted)\t3\nhuman\t-\t7\n"
    )
    for seed, (first, second) in enumerate(((100.0, 110.0), (200.0, 210.0))):
        for row, total in (("mle", first), ("agg", second)):
            save(
                tmp_path / f"seed-{seed}", row, "a", {"x": {"perplexity": {"total": total}}},
                {"perplexity": ["total"]},
            )  # fmt: skip
        bleu = {name: {"self_bleu": {"2": 0.5}} for name in ("x", HUMAN)}
        save(tmp_path / f"seed-{seed}", "mle", "b", bleu, {"self_bleu": ["2"]})
    main([str(table), str(tmp_path / "seed-0"), str(tmp_path / "seed-1"), "--changes"])
    printed = capsys.readouterr().out
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in printed.splitlines()
        if line.startswith("|")
    ]
    assert printed.startswith("Title\n\n")
    assert lines[0] == ["", "PPL, paper", "PPL", "SB-2, paper", "SB-2"]
    assert lines[2:] == [
        ["mle", "1.5", "150.00 ± 70.71", "—", "50.0"],
        ["agg", "2", "160.00 ± 70.71", "—", "not run"],
        ["Δ agg", "—", "+7.5% ± 3.5", "—", "—"],
        ["other (quoted)", "3", "quoted", "—", "quoted"],
        ["human", "—", "—", "7", "50.0"],
    ]


def test_a_column_that_a_file_does_not_have_is_noted(tmp_path, capsys):
    table = tmp_path / "t.tsv"
    table.write_text("\ta/PPL\nmle\n")
    columns = {"perplexity": ["rare", "total"]}
    save(tmp_path, "mle", "a", {"x": {"perplexity": {"total": 1.0}}}, columns)
    main([str(table), str(tmp_path)])
    assert capsys.readouterr().out.startswith("Found no column PPL in a.json: mle\n\n")


def test_trainings_that_are_no_seeds_of_each_other_are_refused(tmp_path, capsys):
    """Of those that are, what was changed is said."""
    table = tmp_path / "t.tsv"
    table.write_text("# Title\n\ta/PPL\nmle\t1.5\nagg\t2\n")
    start = "checkpoint.finetune_from_model"
    runs, settings = [str(tmp_path / name) for name in "ab"], {start: ["../first/best.pt", "1"]}
    for run, updates in zip(runs, (5, 6), strict=True):
        for name in ("first", "other"):
            (Path(run) / name).mkdir(parents=True)
            of_run = {"common.seed": updates, "max_update": 5 if name == "first" else updates}
            (Path(run) / name / "settings.json").write_text(json.dumps(of_run))
    for change, message in (
        ({"common.seed": 2, start: ["../first/best.pt", "2"]}, None),
        (
            {"common.seed": 2, start: ["../other/best.pt", "2"]},
            "found other settings (start max_update: 5, 6)",
        ),
        ({"common.seed": 1}, "agg: found the seeds [1, 1]; expected each once"),
        (
            {"common.seed": 2, "criterion.agg_alpha": 0.1},
            "b/agg: found other settings (criterion.agg_alpha: 0.05, 0.1); expected trainings that",
        ),
    ):
        first = settings | {"common.seed": 1, "criterion.agg_alpha": 0.05}
        for run, of_run in zip(runs, (first, first | change), strict=True):
            save(
                Path(run),
                "agg",
                "a",
                {"x": {"perplexity": {"total": 3.0}}},
                {"perplexity": ["total"]},
            )
            (Path(run) / "agg" / "settings.json").write_text(
                json.dumps(of_run | {"changed": "ALPHA=0.05"})
            )
        if message is None:
            main([str(table), *runs])
            assert "Title\nNot as published (ALPHA=0.05): agg\n\n" in capsys.readouterr().out
        else:
            with pytest.raises(UserError, match=re.escape(message)):
                main([str(table), *runs])


def test_trainings_without_settings_are_named(tmp_path, capsys):
    """One alone, by its checkpoint; one of two, by the settings of the other. A row that is measured
    of another row's model has none."""
    (tmp_path / "t.tsv").write_text("# Title\n\ta/PPL\nmle\t1.5\nagg\t2\nf2-joint\t3\n")
    runs = [tmp_path / "a", tmp_path / "b"]
    for run in runs:
        for row in ("mle", "agg", "f2-joint"):
            save(run, row, "a", {"x": {"perplexity": {"total": 3.0}}}, {"perplexity": ["total"]})
    (runs[0] / "mle" / "checkpoint_best.pt").touch()
    (runs[1] / "agg" / "settings.json").write_text('{"common.seed": 1}')
    main([str(tmp_path / "t.tsv"), *map(str, runs)])
    found = f"{runs[0] / 'mle'}, {runs[0] / 'agg'}"
    expected = f"Title\nFound no settings.json, which says how it was trained: {found}\n\n"
    assert capsys.readouterr().out.startswith(expected)


def test_pairwise_results_of_choi_et_al():
    """Its Table 2 gives its Table 9 (a), with trigrams."""
    titles = {"PPL": "perplexity", "KLD": "kld", "MSJ-3": "ms_jaccard", "SB-3": "self_bleu", "Dist-3": "distinct",
              "Rep (%)": "repetition", "Uniq": "unique_tokens"}  # fmt: skip
    folder = ROOT / "scripts" / "wikitext103"
    header, numbers = read(folder / "f2-table-2.tsv")
    columns = [titles.get(column.partition("/")[2].removesuffix(" total")) for column in header]
    models = {
        row: {
            name: float(cell.rstrip("k"))
            for name, cell in zip(columns, cells, strict=True)
            if name and cell != "-"
        }
        for row, cells in numbers.items()
    }
    human, printed = models.pop("human"), 0
    for row, cells in read(folder / "f2-table-9.tsv")[1].items():
        for other, cell in zip(models, cells, strict=False):
            if cell not in ("", "-"):
                won = (
                    wins(models[row], models[other], human),
                    wins(models[other], models[row], human),
                )
                assert f"{won[0]}-{won[1]}" == cell, (row, other)
                printed += 1
    assert printed == 10


def test_tokens_are_joined_as_people_read_them(gpt2_bpe, tmp_path):
    (tmp_path / "tokenizer").symlink_to(gpt2_bpe)
    files = [str(tmp_path / "tokenizer" / name) for name in ("encoder.json", "vocab.bpe")]
    ids = ByteLevelBPETokenizer.from_file(*files).encode(" A naïve game").ids
    for kind, text, read_as in (
        ("gpt2", f"{' '.join(map(str, ids))} </s> {ids[0]}", "A naïve game </s> A"),
        ("sentencepiece", "▁A ▁na ï ve ▁game </s>", "A naïve game</s>"),
        ("words", "a game @-@ <unk>", "a game @-@ <unk>"),
    ):
        (tmp_path / "manifest.json").write_text(json.dumps({"bpe": {"kind": kind}}))
        assert readable(text, tmp_path) == read_as
