import json
from functools import partial
from types import SimpleNamespace

from tokenizers import ByteLevelBPETokenizer

from agg_fairseq.columns import METRICS
from agg_fairseq.data.subwords import TokenizerOptions
from agg_fairseq.errors import UserError
from agg_fairseq.names import HUMAN
from agg_fairseq.result import Result
from scripts.experiments import tables
from scripts.experiments.experiment import Column, Corpus, Experiment, Method, Model, Workspace
from scripts.experiments.measures import NotRun, reader
from scripts.experiments.tables import measured, render, show

TEXT = Corpus("text", ("scripts.data.wikitext",), "words")


def table(measures, rows, papers=None, **options):
    """A table of columns named as these measures, with these values: by method, a value per seed for each column."""

    def read(workspace, method, position):
        value = rows[method.label][position][workspace.seed - 1]
        if value == "not run":
            raise NotRun(method.label)
        return value

    methods = [
        Method(label, None if label == "SC" else Model(label, "c", TEXT), (papers or {}).get(label, ""))
        for label in rows
    ]
    columns = [Column(name, partial(read, position=position), METRICS[name]) for position, name in enumerate(measures)]
    experiment = Experiment("Title", methods, columns, **options)
    seeds = range(1, 1 + max(len(of_seeds) for row in rows.values() for of_seeds in row))
    result = measured([Workspace("tiny", None, seed=seed) for seed in seeds], experiment)
    lines = render(experiment, result).splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_a_column_of_the_paper_stands_beside_each_of_ours_that_it_has():
    rows = {"MLE": [[1.456], [12345.67]], "AGG": [["not run"], ["not run"]], "SC": [[0], [0]]}
    lines = table(["perplexity", "kld"], rows, {"MLE": "1.5 -", "AGG": "2"})
    assert lines[0] == ["", "perplexity, paper", "perplexity", "kld"]
    assert lines[2:] == [
        ["MLE", "1.5", "1.46", "12,345.67"], ["AGG", "2", "not run", "not run"], ["SC", "—", "quoted", "quoted"],
    ]  # fmt: skip


def test_many_measures_stand_under_each_other_unless_the_table_is_wide():
    measures = ["perplexity", "kld", "bleu", "sacrebleu", "unique_tokens"]
    rows = {"MLE": [[5], [4], [3], [2], [1]], "AGG": [["x"]] * 5}
    lines = table(measures, rows, {"MLE": "1 2 3 4 5"})
    assert lines[0] == ["", "MLE, paper", "MLE", "AGG"] and len(lines) == 7
    assert lines[2] == ["perplexity", "1", "5", "x"]
    lines = table(measures, rows, wide=True)
    assert lines[0] == ["", *measures] and len(lines) == 4


def test_several_seeds_and_changes_of_the_same_seed():
    """By hand: of 100 and 200 the sample deviation is 100/√2; 100 to 110 and 200 to 210 are +10% and +5%."""
    rows = {"a": [[100.0, 200.0], [0.25, 0.5]], "b": [[110.0, 210.0], [0.5, None]], "c": [["x", "y"], [None, None]]}
    lines = table(["perplexity", "isotropy"], rows, wide=True, changes=True)
    assert lines[2:] == [
        ["a", "150.00 ± 70.71", "0.375 ± 0.177"],
        ["b", "160.00 ± 70.71", "0.500 (n = 1)"],
        ["Δ b", "+7.5% ± 3.5", "+0.250"],
        ["c", "x / y", "—"],
    ]


def test_a_column_reads_the_row_of_the_model_or_of_the_human_text():
    """In the unit of tables, percent."""
    result = Result({"mle": {"self_bleu": {"2": 0.5}}, HUMAN: {"self_bleu": None}}, {"self_bleu": ["2"]}, {})
    model, column = Model("mle", "c", TEXT), Column.of("SB", lambda workspace, method: result, "self_bleu", "2")
    assert column.read(None, Method("", model)) == 50
    assert column.read(None, Method("", model, human=True)) is None


def test_texts_are_printed_under_the_table_and_numbers_are_written(tmp_path, capsys):
    """Each prefix once, and what each method makes of it; a model that is not trained is left out."""

    def samples(workspace, method):
        if method.model.name == "missing":
            raise NotRun(method.model.name)
        name = method.model.name
        return [{"prefix": "Once", "continuation": f"upon {number} {name}"} for number in (1, 2)]

    methods = [Method(name.upper(), Model(name, "c", TEXT), "15") for name in ("mle", "missing")]
    column = Column("Texts", lambda *arguments: len(samples(*arguments)))
    show([Workspace("tiny", tmp_path)], "agg-5", Experiment("Title", methods, [column], samples=samples))
    printed = capsys.readouterr().out
    assert "Text 1, prefix: Once\nMLE: upon 1 mle\n\nText 2, prefix: Once\nMLE: upon 2 mle\n" in printed
    assert "MISSING:" not in printed and "not run" in printed and "Scale: tiny." in printed
    assert (tmp_path / "tables" / "agg-5.md").read_text() == printed
    facts = json.loads((tmp_path / "tables" / "agg-5.json").read_text())
    assert facts["rows"] == [{"method": "MLE", "Texts": 2}, {"method": "MISSING", "Texts": "not run"}]


def test_errors_of_the_report_are_said(tmp_path, capsys, monkeypatch):
    """The page is written without the section."""
    page, model = tmp_path / "report.html", Model("m", "demo/mle", TEXT)
    monkeypatch.setattr(tables, "write_report", lambda *arguments, **options: {"Texts": UserError("data: damaged")})
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


def test_tokens_are_joined_as_people_read_them(shared_data):
    files = {"gpt2_encoder_json": "encoder.json", "gpt2_vocab_bpe": "vocab.bpe"}
    paths = {option: shared_data / "gpt2-bpe" / name for option, name in files.items()}
    ids = ByteLevelBPETokenizer.from_file(*map(str, paths.values())).encode(" A naïve game").ids
    line = f"{' '.join(map(str, ids))} </s> {ids[0]}"
    assert reader(TokenizerOptions("gpt2", **paths))(line) == "A naïve game </s> A"
    assert reader(TokenizerOptions("sentencepiece"))("▁A ▁na ï ve ▁game </s>") == "A naïve game</s>"
    assert reader(TokenizerOptions("words"))("a game @-@ <unk>") == "a game @-@ <unk>"
