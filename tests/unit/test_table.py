"""Tables of the papers: our numbers stand beside theirs."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer

from agg_fairseq.errors import UserError
from agg_fairseq.files import write_json
from agg_fairseq.names import HUMAN
from agg_fairseq.result import Result
from scripts import texts
from scripts.table import main, read_table
from scripts.texts import readable
from scripts.wikitext103.f2_table_9 import wins
from scripts.wmt14_en_de.hidden_states import margin
from tests.conftest import ROOT, table_cells


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("# Title\n\ta/PPL\nmle\t1.5\nagg\t2\n")
    return path


def save(folder, total=3.0, settings=None):
    """What a run of `scripts/` leaves of a row: a perplexity in `a.json`, and its settings."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"x": {"perplexity": {"total": total}}}
    write_json(folder / "a.json", Result(values, {"perplexity": ["total"]}, {}).json())
    if settings is not None:
        write_json(folder / "settings.json", settings)


def test_ours_beside_the_papers_means_over_seeds_and_changes(table, tmp_path, capsys):
    """By hand: of 100 and 200 the sample deviation is 100/√2; 100 to 110 and 200 to 210 are +10%
    and +5%."""
    table.write_text(
        "# Title\n\ta/PPL\tb/SB-2\nmle\t1.5\t-\nagg\t2\nother (quoted)\t3\nhuman\t-\t7\n"
    )
    text_row = {"self_bleu": {"2": 0.5}}
    bleu = Result({"x": text_row, HUMAN: text_row}, {"self_bleu": ["2"]}, {}).json()
    runs = [tmp_path / "a", tmp_path / "b"]
    for run, mle in zip(runs, (100.0, 200.0), strict=True):
        save(run / "mle", mle)
        save(run / "agg", mle + 10)
        write_json(run / "mle" / "b.json", bleu)
    main([str(table), *map(str, runs), "--changes"])
    printed = capsys.readouterr().out
    assert printed.startswith("Title\n\n")
    assert table_cells(printed) == [
        ["", "PPL, paper", "PPL", "SB-2, paper", "SB-2"],
        ["mle", "1.5", "150.00 ± 70.71", "—", "50.0"],
        ["agg", "2", "160.00 ± 70.71", "—", "not run"],
        ["Δ agg", "—", "+7.5% ± 3.5", "—", "—"],
        ["other (quoted)", "3", "quoted", "—", "quoted"],
        ["human", "—", "—", "7", "50.0"],
    ]


START = "checkpoint.finetune_from_model"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"common.seed": 2, START: ["../first/best.pt", "2"]}, None),
        ({"common.seed": 2, START: ["../other/best.pt", "2"]}, "found other settings (start max_update: 5, 6)"),
        ({"common.seed": 1}, "agg: found the seeds [1, 1]"),
        (
            {"common.seed": 2, "criterion.agg_alpha": 0.1},
            "b/agg: found other settings (criterion.agg_alpha: 0.05, 0.1)",
        ),
    ],
)  # fmt: skip
def test_trainings_that_are_no_seeds_of_each_other_are_refused(
    change, message, table, tmp_path, capsys
):
    first = {START: ["../first/best.pt", "1"], "common.seed": 1, "criterion.agg_alpha": 0.05}
    runs = [tmp_path / "a", tmp_path / "b"]
    for run, updates, settings in zip(runs, (5, 6), (first, first | change), strict=True):
        save(run / "first", settings={"common.seed": updates, "max_update": 5})
        save(run / "other", settings={"common.seed": updates, "max_update": updates})
        save(run / "agg", settings=settings)
    if message is None:
        main([str(table), *map(str, runs)])
        assert capsys.readouterr().out.startswith("Title\n\n")
    else:
        with pytest.raises(UserError, match=re.escape(message)):
            main([str(table), *map(str, runs)])


def test_pairwise_results_of_choi_et_al():
    titles = {"PPL": "perplexity", "KLD": "kld", "MSJ-3": "ms_jaccard", "SB-3": "self_bleu", "Dist-3": "distinct",
              "Rep (%)": "repetition", "Uniq": "unique_tokens"}  # fmt: skip
    folder, models, printed = ROOT / "scripts" / "wikitext103", {}, 0
    _, header, numbers = read_table(folder / "f2-table-2.tsv")
    for row, cells in numbers.items():
        models[row] = {}
        for column, cell in zip(header, cells, strict=True):
            name = titles.get(column.partition("/")[2].removesuffix(" total"))
            if name and cell != "-":
                models[row][name] = float(cell.rstrip("k"))
    human = models.pop("human")
    for row, cells in read_table(folder / "f2-table-9.tsv")[2].items():
        for other, cell in zip(models, cells, strict=False):
            if cell not in ("", "-"):
                won = wins(models[row], models[other], human)
                assert f"{won}-{wins(models[other], models[row], human)}" == cell, (row, other)
                printed += 1
    assert printed == 10


def test_tokens_are_joined_as_people_read_them(gpt2_bpe, tmp_path):
    (tmp_path / "tokenizer").symlink_to(gpt2_bpe)
    files = [str(tmp_path / "tokenizer" / name) for name in ("encoder.json", "vocab.bpe")]
    ids = ByteLevelBPETokenizer.from_file(*files).encode(" A naïve game").ids
    for kind, text, readable_text in (
        ("gpt2", f"{' '.join(map(str, ids))} </s> {ids[0]}", "A naïve game </s> A"),
        ("sentencepiece", "▁A ▁na ï ve ▁game </s>", "A naïve game</s>"),
        ("words", "a game @-@ <unk>", "a game @-@ <unk>"),
    ):
        (tmp_path / "manifest.json").write_text(json.dumps({"bpe": {"kind": kind}}))
        assert readable(text, tmp_path) == readable_text


def test_uniq_and_vr_of_a_text(tmp_path, monkeypatch, capsys):
    """As the papers count: Uniq to the first `</s>`; of six words, one has a very rare piece."""
    (tmp_path / "manifest.json").write_text(json.dumps({"bpe": {"kind": "sentencepiece"}}))
    pieces = {"</s>": 0, "▁a": 1, "b": 2, "▁c": 3}
    dictionary = SimpleNamespace(index=pieces.get)
    monkeypatch.setattr(texts, "load_dictionary", lambda _: dictionary)
    monkeypatch.setattr(texts, "count_split", lambda *_: torch.tensor([9, 50, 45, 5]))
    monkeypatch.setattr(texts, "excluded_tokens", lambda _: torch.arange(4) == 0)
    file = tmp_path / "mle" / "texts.jsonl"
    file.parent.mkdir()
    text = {"prefix": "▁a", "continuation": "▁a b ▁a b </s> ▁a ▁a b ▁c b ▁a </s>"}
    file.write_text(json.dumps(text))
    texts.main(tmp_path, [file])
    assert "mle (Uniq 3, VR 16.7%): ab ab</s> a ab cb a</s>" in capsys.readouterr().out
    assert texts.unique_tokens(["a", "b", "a"]) == 2, "a text without an end"


def test_the_hull_of_normalized_states_lies_beside_0():
    """v = ±1/g turns every state by the sum of b/g times D (Gao et al. 2019, Appendix C): the
    margin is at least that of the largest such v, and 0 where the states lie around 0."""
    states = torch.randn(200, 6)
    assert margin(torch.cat([states, -states])) == 0
    norm = torch.nn.LayerNorm(6)
    norm.weight.data, norm.bias.data = torch.rand(6) + 0.5, torch.randn(6)
    direction = norm.weight.data.reciprocal()
    least = (norm.bias.data @ direction).abs() / direction.max()
    assert margin(norm(states).detach()) >= least - 1e-4
