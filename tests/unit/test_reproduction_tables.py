"""scripts/experiments: what the tables and figures are made of, and how they are printed."""

import re
from types import SimpleNamespace

import pytest

from agg_fairseq.data.subwords import Tokenizer, gpt2_tokenizer
from agg_fairseq.errors import UserError
from agg_fairseq.evaluation import Column, Result
from agg_fairseq.names import HUMAN
from agg_fairseq.report.report import WrittenReport
from scripts.experiments import f2, tables
from scripts.experiments.entries import EXPERIMENTS
from scripts.experiments.experiment import Corpus, Experiment, Measure, Method, Model, Workspace
from scripts.experiments.measures import NotRun
from scripts.experiments.pairwise import wins
from scripts.experiments.samples import reader
from scripts.experiments.tables import render, show
from tests.conftest import ROOT

PAPERS = {"agg": "agg-acl2022", "agps": "agps-2021", "f2": "f2-softmax-emnlp2020", "cosreg": "cosreg-iclr2019"}
TABLES = {
    "agg": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15),
    "agps": (1, 2, 3, 4, 10, 11, 12),
    "f2": (1, 2, 3, 4, 5, 8, 9, 10, "texts"),
    "cosreg": (1, 2),
}
FIGURES = {"agg": (1, 2, 3, 4, 5), "agps": (1, 2, 3, 4, 5, 6, 7), "f2": (2, 3), "cosreg": (2, "3a", "3b")}
TEXT = Corpus("text", ("scripts.data.wikitext",), "words")


def test_the_tables_and_figures_of_all_papers():
    tables = {f"{paper}-{number}" for paper, numbers in TABLES.items() for number in numbers}
    figures = {f"{paper}-figure-{number}" for paper, numbers in FIGURES.items() for number in numbers}
    assert set(EXPERIMENTS) == tables | figures


@pytest.mark.parametrize("key", EXPERIMENTS)
def test_each_has_something_to_show_of_configurations_that_exist(key):
    experiment = EXPERIMENTS[key]
    assert experiment.measures or experiment.pictures
    for model in experiment.models():
        assert (ROOT / "configs" / f"{model.config}.yaml").is_file(), model.config
    assert all(len(method.paper) <= len(experiment.measures) for method in experiment.methods)


def test_two_models_of_one_folder_are_trained_alike():
    seen: dict[str, Model] = {}
    for experiment in EXPERIMENTS.values():
        for model in experiment.models():
            other = seen.setdefault(model.name, model)
            for field in ("config", "corpus", "overrides", "scaled", "scales", "start", "convert", "averaged"):
                assert getattr(other, field) == getattr(model, field), (model.name, field)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_numbers_are_those_that_the_paper_prints(paper, shared_data):
    printed = cells_of(paper, shared_data)
    for key, experiment in EXPERIMENTS.items():
        if key.startswith(f"{paper}-"):
            numbers = {text.rstrip("*") for method in experiment.methods for text in method.paper if text is not None}
            missing = {text for text in numbers if not {text, f"'{text}'", f'"{text}"'} & set(printed)}
            assert not missing, key


IN_ORDER = (
    "agg-1", "agg-2", "agg-3", "agg-4", "agg-8", "agg-9", "agg-10", "agg-11", "agps-1", "agps-3", "agps-4",
    "f2-1", "f2-2", "f2-3", "f2-8", "cosreg-1",
)  # fmt: skip


@pytest.mark.parametrize("key", IN_ORDER)
def test_each_row_is_one_of_the_paper(key, shared_data):
    """The copies of the other tables have their cells in another order."""
    printed = cells_of(key.split("-")[0], shared_data)
    for method in EXPERIMENTS[key].methods:
        row = [text for text in method.paper if text is not None]
        assert any(printed[index : index + len(row)] == row for index in range(len(printed))), (key, method.label)


def cells_of(paper, shared_data):
    """All words and numbers of a paper's text, in order, without mark-up."""
    path = shared_data.parent / "papers" / f"{PAPERS[paper]}.txt"
    if not path.is_file():
        pytest.skip(f"no text of the paper at {path}")
    text = re.sub(r"</?(?:b|td|tr|th|br)>", " ", path.read_text(encoding="utf-8"))
    return [cell for cell in re.findall(r"[^\s|<>*]+", text) if cell not in ("-", "—")]


def test_pairwise_results_of_choi_et_al():
    """Its Table 2 gives its Table 9 (a), with trigrams."""
    columns = ("PPL", "KLD", "MSJ-1", "MSJ-2", "MSJ-3", "SB-1", "SB-2", "SB-3", "Dist-1", "Dist-2", "Dist-3", "Rep (%)")

    def measured(label, numbers):
        values = [float(text.rstrip("k")) for text in (f2.PERPLEXITIES.get(label, "0"), *numbers[: len(columns)])]
        return dict(zip((*columns, "Uniq"), values, strict=True))

    models = {label: measured(label, numbers) for label, numbers in f2.GREEDY.items()}
    human = measured("Human", [text or "0" for text in f2.HUMAN[1:]])
    for (first, second), paper in f2.WON.items():
        found = wins(models[first], models[second], human), wins(models[second], models[first], human)
        assert f"{found[0]}-{found[1]}" == paper, (first, second)
    assert len(f2.WON) == 10


def test_tokens_are_joined_as_people_read_them(shared_data):
    files = {"gpt2_encoder_json": "encoder.json", "gpt2_vocab_bpe": "vocab.bpe"}
    paths = {option: shared_data / "gpt2-bpe" / name for option, name in files.items()}
    ids = gpt2_tokenizer(*map(str, paths.values())).encode(" A naïve game").ids
    assert reader(Tokenizer("gpt2", **paths))(f"{' '.join(map(str, ids))} </s> {ids[0]}") == "A naïve game </s> A"
    assert reader(Tokenizer("sentencepiece"))("▁A ▁na ï ve ▁game </s>") == "A naïve game</s>"
    assert reader(Tokenizer("words"))("a game @-@ <unk>") == "a game @-@ <unk>"


def test_texts_are_printed_under_the_table(tmp_path, capsys):
    """Each prefix once, and what each method makes of it; a model that is not trained is left out."""

    def samples(workspace, model):
        if model.name == "missing":
            raise NotRun(model.name)
        texts = [{"prefix": "Once", "continuation": f"upon {number} {model.name}", "uniq": number} for number in (1, 2)]
        return Result([], {model.name: []}, "", {"texts": texts})

    methods = [Method(name.upper(), Model(name, "c", TEXT), ("15",)) for name in ("mle", "missing")]
    measure = Measure("Uniq", samples, lambda result: result.details["texts"][0]["uniq"])
    show([Workspace("tiny", tmp_path)], "agg-5", Experiment("Title", methods, [measure], samples=samples))
    printed = capsys.readouterr().out
    assert "Text 1, prefix: Once\nMLE: upon 1 mle\n\nText 2, prefix: Once\nMLE: upon 2 mle\n" in printed
    assert "MISSING:" not in printed and "not run" in printed


def test_errors_of_the_report_are_said(tmp_path, capsys, monkeypatch):
    """The page is written without the section."""
    page, model = tmp_path / "report.html", Model("m", "demo/mle", Corpus("c", (), "words"))
    written = WrittenReport(page, 3, {}, [UserError("data: damaged")])
    monkeypatch.setattr(tables, "write_report", lambda *arguments: written)
    workspace = Workspace("tiny", tmp_path, train=False)
    workspace.folder(model).mkdir()
    (workspace.folder(model) / "done").touch()
    monkeypatch.setattr(tables, "prepare", lambda workspace, corpus: SimpleNamespace(binarized=tmp_path))
    show([workspace], "ours", Experiment("Title", [Method("m", model)], name="table", report=True))
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == str(page) and "reproduce: the report lacks a section: data: damaged\n" in err


def test_models_are_listed_once_and_after_those_that_they_start_from():
    first = Model("first", "a", TEXT)
    second = Model("second", "b", TEXT, start=first)
    experiment = Experiment("", [Method("2", second), Method("1", first), Method("none", None), Method("2", second)])
    assert [model.name for model in experiment.models()] == ["first", "second"]


def measures(count, digits=1):
    return [Measure(f"m{index}", lambda workspace, model: None, "", digits) for index in range(count)]


def of_one_seed(*rows):
    return [[[value] for value in row] for row in rows]


def test_a_column_of_the_paper_stands_beside_each_of_ours_that_it_has():
    methods = [Method("MLE", None, ("1.5", None)), Method("AGG", None, ("2", None))]
    assert render(methods, measures(2), of_one_seed([1.46, 12345.67], ["not run", None])).splitlines() == [
        "|     | m0, paper |      m0 |       m1 |",
        "|-----|----------:|--------:|---------:|",
        "| MLE |       1.5 |     1.5 | 12,345.7 |",
        "| AGG |         2 | not run |        — |",
    ]


def test_many_measures_stand_under_each_other_unless_the_table_is_wide():
    methods = [Method("MLE", None, tuple("12345")), Method("AGG", None)]
    cells = of_one_seed([5, 4, 3, 2, 1], ["x"] * 5)
    table = render(methods, measures(5, digits=0), cells).splitlines()
    assert table[0] == "|    | MLE, paper | MLE | AGG |"
    assert table[2] == "| m0 |          1 |   5 |   x |" and len(table) == 7
    wide = render([Method("MLE", None), Method("AGG", None)], measures(5, digits=0), cells, wide=True).splitlines()
    assert wide[0] == "|     | m0 | m1 | m2 | m3 | m4 |" and len(wide) == 4


def test_several_seeds():
    """Mean and sample standard deviation by hand: of 1, 2 and 6 they are 3 and √7."""
    rows = [[[1.0, 2.0, 6.0], [1.0, "not run", 3.0]], [["not run"] * 3, [7.0, 7.0, 7.0]], [["a", "b", "a"], [None] * 3]]
    table = render([Method(name, None) for name in "abc"], measures(2, digits=2), rows).splitlines()
    assert [[cell.strip() for cell in line.split("|")[2:-1]] for line in table[2:]] == [
        ["3.00 ± 2.65", "2.00 ± 1.41 (n = 2)"],
        ["not run", "7.00"],
        ["a / b", "—"],
    ]


def test_changes_are_of_the_same_seed():
    """By hand: 100 to 110 and 200 to 210 are +10% and +5%; their mean is 7.5, their sample deviation 5/√2."""
    columns = [Measure("PPL", None, "PPL", relative=True), Measure("I(W)", None, "I(W)", 3)]
    rows = [[[100, 200], [0.25, 0.5]], [[110, 210], [0.5, "not run"]], [[None] * 2, [None] * 2]]
    methods = [Method("a", None), Method("b", None), Method("human", None, human=True)]
    table = render(methods, columns, rows, wide=True, changes=True).splitlines()
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[4:]] == [
        ["Δ b", "+7.5% ± 3.5", "+0.250"],
        ["human", "—", "—"],
    ]


def test_a_measure_reads_the_row_of_the_model_or_of_the_human_text():
    result = Result([Column("PPL")], {"mle": [2.0], HUMAN: [None]}, "")
    model, by_title = Model("mle", "c", TEXT), Measure("m", lambda workspace, model: result, "PPL")
    assert by_title.value(None, model, "mle") == 2.0 and by_title.value(None, model, HUMAN) is None
    assert Measure("m", lambda workspace, model: result, lambda found: len(found.rows)).value(None, model, "") == 2
