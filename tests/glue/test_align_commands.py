"""The commands `align` and `align-sim`, called in this process: the files, the table, the JSON file, every error."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import pytest
import torch

from agg_fairseq import __version__
from agg_fairseq.cli.main import main
from agg_fairseq.data.alignments import format_links, load_parallel, parse_links, read_links
from agg_fairseq.data.binarized import count_tokens, load_dictionary
from agg_fairseq.metrics import align_sim, orthogonal_align_sim, relative_frequency_groups

GROUPS = ("frequent", "medium", "rare", "total")
TASK = {"_name": "translation", "source_lang": "en", "target_lang": "de"}


def sentences(data, language):
    return [line.split() for line in (data.parent / f"train.{language}").read_text().splitlines()]


@pytest.fixture(scope="module")
def links(mt_data, tmp_path_factory):
    """The right alignments: the target says the source backwards."""
    path = tmp_path_factory.mktemp("links") / "en-de.align"
    lengths = map(len, sentences(mt_data, "en"))
    path.write_text("".join(format_links((i, n - 1 - i) for i in range(n)) + "\n" for n in lengths))
    return path


def save_model(folder, weight, **task):
    """What `fairseq-train` saves of a model, as far as it is needed."""
    folder.mkdir(exist_ok=True)
    parameters = {"decoder.output_projection.weight": weight, "decoder.embed_tokens.weight": weight}
    torch.save({"model": parameters, "cfg": {"task": {**TASK, **task}}}, folder / "checkpoint_best.pt")
    return folder / "checkpoint_best.pt"


def model(folder, data, seed=0):
    torch.manual_seed(seed)
    weight = torch.randn(len(load_dictionary(data, "dict.de.txt")), 8)
    weight[1] = 0  # padding
    return save_model(folder, weight)


def cells(printed):
    """The table's cells: by row, by column."""
    header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines()[:-2]]
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


def run(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def error_of(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_table(mt_data, links, tmp_path, capsys):
    """The mean over each group, over the words that the training text has; those of the source alone are rare."""
    paths = [model(tmp_path / name, mt_data, seed) for seed, name in enumerate(("mle", "agps"))]
    printed = run(capsys, "align-sim", *paths, "--data", mt_data, "--alignments", links)
    table = cells(printed)
    assert list(table) == ["mle", "agps", "orthogonal", "labeled tokens"]
    dictionary = load_dictionary(mt_data, "dict.de.txt")
    counts = count_tokens(mt_data, dictionary, "train.en-de.de")
    rare = (counts == 0).nonzero().squeeze(1).tolist()
    of_source = {dictionary.index(word) for sentence in sentences(mt_data, "en") for word in sentence}
    of_target = {dictionary.index(word) for sentence in sentences(mt_data, "de") for word in sentence}
    assert of_source < set(rare) and not of_source & of_target
    expected = [len(of_target), 0, len(of_source), len(of_source) + len(of_target)]
    assert [table["labeled tokens"][f"AlignSim {group}"] for group in GROUPS] == [str(n) for n in expected]
    counted = read_links(links, load_parallel(mt_data, ("en", "de")))
    values = [align_sim(torch.load(path)["model"]["decoder.embed_tokens.weight"], counted) for path in paths]
    values.append(orthogonal_align_sim(counted, len(dictionary)))
    for row, of_row in zip(("mle", "agps", "orthogonal"), values, strict=True):
        members = (list(of_target), list(of_source), list(of_target | of_source))
        frequent, source_only, total = (f"{of_row[tokens].mean():.4f}" for tokens in members)
        assert list(table[row].values()) == [frequent, "—", source_only, total]
    total = sum(map(len, sentences(mt_data, "en")))
    assert printed.splitlines()[-1] == (
        "matrix:decoder.output_projection.weight(tied)|groups:1e-05/1e-06-of-tokens,target-side|temperature:10|"
        f"links:{total}|pairs:{len(of_source)}|labels:symmetric|version:{__version__}"
    )


def test_a_model_that_knows_the_words(mt_data, tmp_path, links, capsys):
    """w3 and t3 point the same way, all others elsewhere."""
    dictionary = load_dictionary(mt_data, "dict.de.txt")
    weight = torch.eye(len(dictionary))
    for index in range(30):
        if dictionary.index(f"t{index}") != dictionary.unk():
            weight[dictionary.index(f"w{index}")] = weight[dictionary.index(f"t{index}")]
    path = save_model(tmp_path / "m", weight)
    options = ("--data", mt_data, "--alignments", links, "--temperature", 30)
    table = cells(run(capsys, "align-sim", path, *options))
    assert table["m"]["AlignSim total"] == f"{0.5**0.5:.4f}"  # half of the softmax is the word itself
    assert table["orthogonal"]["AlignSim total"] == "0.0000"


def test_json_groups_and_names(mt_data, links, tmp_path, capsys):
    path, target = model(tmp_path / "m", mt_data), tmp_path / "out.json"
    options = ("--data", mt_data, "--alignments", links, "--groups", "types", "--name", "x", "--json", target)
    printed = run(capsys, "align-sim", path, *options)
    result = json.loads(target.read_text())
    assert result["signature"] == printed.splitlines()[-1]
    assert "|groups:30%/50%/20%-of-types,target-side|" in printed
    (one,) = result["checkpoints"]
    assert (one["name"], one["path"]) == ("x", str(path))
    assert f"{one['align_sim']['total']:.4f}" == cells(printed)["x"]["AlignSim total"]
    assert result["labelled"]["total"] == sum(result["labelled"][group] for group in GROUPS[:-1])
    assert set(result["groups"]) == set(GROUPS[:-1]) and set(result["orthogonal"]) == set(GROUPS)


def test_a_model_of_the_other_direction(mt_data, links, tmp_path, capsys):
    """The links are those of the files, en-de; the frequencies those of its target, English."""
    weight = torch.randn(len(load_dictionary(mt_data, "dict.de.txt")), 8)
    path = save_model(tmp_path / "m", weight, source_lang="de", target_lang="en")
    table = cells(run(capsys, "align-sim", path, "--data", mt_data, "--alignments", links))
    values = align_sim(weight, read_links(links, load_parallel(mt_data, ("en", "de"))))
    dictionary = load_dictionary(mt_data, "dict.en.txt")
    groups = relative_frequency_groups(count_tokens(mt_data, dictionary, "train.en-de.en"))
    assert table["m"]["AlignSim rare"] == f"{values[groups.members('rare')].nanmean():.4f}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "a", "b"], "2 names for 1"),
        (["--temperature", "0"], "--temperature: expected a positive number, got 0.0"),
        (["--temperature", "nan"], "--temperature: expected a positive number, got nan"),
        (["--temperature", "inf"], "--temperature: expected a positive number, got inf"),
        (["--alignments", "nowhere"], "nowhere: unreadable"),
        (["--data", "nowhere"], "found no such folder"),
        (["--json", "/dev/null/x.json"], "cannot write"),
        (["--name", "orthogonal"], "--name: found 'orthogonal', a row of its own; give the checkpoint another name"),
        (["--name", "labeled tokens"], "--name: found 'labeled tokens', a row of its own"),
    ],
)
def test_bad_options(mt_data, links, tmp_path, capsys, arguments, words):
    path = model(tmp_path / "m", mt_data)
    assert words in error_of(capsys, "align-sim", path, "--data", mt_data, "--alignments", links, *arguments)


def test_bad_alignments(mt_data, links, tmp_path, capsys):
    path, bad = model(tmp_path / "m", mt_data), tmp_path / "bad.align"
    options = ("--data", mt_data, "--alignments", bad)
    bad.write_text(links.read_text() + "0-0\n")
    assert "found 81 lines; expected 80" in error_of(capsys, "align-sim", path, *options)
    bad.write_text(links.read_text().replace("0-", "x-", 1))
    assert f"{bad}, line 1: found 'x-" in error_of(capsys, "align-sim", path, *options)
    before = bad.read_text()
    expected = f"--json: found {bad}, a file that is read; name another"
    assert expected in error_of(capsys, "align-sim", path, *options, "--json", bad)
    assert bad.read_text() == before


def test_a_row_of_its_own_as_a_folder(mt_data, links, tmp_path, capsys):
    path = model(tmp_path / "orthogonal", mt_data)
    assert "'orthogonal', a row" in error_of(capsys, "align-sim", path, "--data", mt_data, "--alignments", links)


def test_data_are_not_overwritten(mt_data, links, tmp_path, capsys):
    path, target = model(tmp_path / "m", mt_data), mt_data / "train.en-de.en.bin"
    before = target.read_bytes()
    options = ("--data", mt_data, "--alignments", links, "--json", target)
    assert f"--json: found {target}" in error_of(capsys, "align-sim", path, *options)
    assert target.read_bytes() == before


def test_a_bar_per_checkpoint(mt_data, links, tmp_path, monkeypatch):
    """Over the chunks of its rows."""
    module, bars = sys.modules["agg_fairseq.evaluation.align_sim"], []
    monkeypatch.setattr(module, "tqdm", lambda chunks, **said: bars.append((said["desc"], chunks)) or chunks)
    paths = [model(tmp_path / name, mt_data) for name in ("mle", "agps")]
    assert main(["align-sim", *map(str, paths), "--data", str(mt_data), "--alignments", str(links)]) == 0
    assert [desc for desc, _ in bars] == ["AlignSim of mle", "AlignSim of agps"]
    tokens = read_links(links, load_parallel(mt_data, ("en", "de"))).tokens()
    assert all(torch.equal(torch.cat(list(chunks)), tokens) for _, chunks in bars)


def test_models_without_a_joined_dictionary(mt_data, lm_data, links, tmp_path, capsys):
    data = tmp_path / "separate"
    data.mkdir()
    for path in mt_data.glob("*"):
        (data / path.name).write_bytes(path.read_bytes())
    with (data / "dict.en.txt").open("a") as file:
        file.write("more 1\n")
    translation = model(tmp_path / "m", mt_data)
    error = error_of(capsys, "align-sim", translation, "--data", data, "--alignments", links)
    assert "found separate dictionaries; AlignSim expects" in error and "--joined-dictionary" in error
    weight = torch.randn(len(load_dictionary(lm_data)), 4)
    language = save_model(tmp_path / "lm", weight, _name="language_modeling")
    error = error_of(capsys, "align-sim", language, "--data", lm_data, "--alignments", links)
    assert "found a language model; AlignSim expects" in error


def test_align(mt_data, tmp_path, capsys):
    """With eflomal itself; it draws, but 80 sentences of words said backwards leave it little doubt."""
    pytest.importorskip("eflomal")
    output = tmp_path / "new" / "en-de.align"
    printed = run(capsys, "align", mt_data, "--output", output, "--model", "1")
    assert printed.startswith(f"{output}: 80 sentence pairs aligned in ")
    signature = printed.splitlines()[-1].split("|")
    assert signature[0].startswith("aligner:eflomal-") and signature[-1] == f"version:{__version__}"
    assert signature[1:5] == ["model:1", "symmetrized:grow-diag-final-and", "languages:en-de", "sentence-pairs:80"]
    lines = output.read_text().splitlines()
    pairs = list(zip(sentences(mt_data, "en"), sentences(mt_data, "de"), lines, strict=True))
    linked = [(source[s], target[t]) for source, target, line in pairs for s, t in parse_links(line)]
    assert sum(w[1:] == t[1:] for w, t in linked) > 0.7 * len(linked) > 0
    assert len(linked) > 0.7 * sum(len(source) for source, _, _ in pairs)


def fake_aligner(monkeypatch, align):
    """A module `eflomal` whose `Aligner` calls `align(model, sources, targets, forward, reverse)`."""

    def aligner(*, model):
        def run_align(sources, targets, *, links_filename_fwd, links_filename_rev, quiet):
            align(model, list(sources), list(targets), links_filename_fwd, links_filename_rev)

        return SimpleNamespace(align=run_align)

    monkeypatch.setitem(sys.modules, "eflomal", SimpleNamespace(Aligner=aligner))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.0")


def test_align_by_a_given_aligner(mt_data, tmp_path, capsys, monkeypatch):
    """What it is given, the tokens' numbers without eos, and what becomes of its links."""
    dictionary = load_dictionary(mt_data, "dict.de.txt")
    given = {}

    def align(model, sources, targets, forward, reverse):
        given.update(model=model, en=sources, de=targets)
        with open(forward, "w") as one, open(reverse, "w") as other:
            for number in range(len(sources)):
                print("0-0 1-1" if number else "", file=one)
                print("0-0 1-0 2-1 2-2" if number else "", file=other)

    fake_aligner(monkeypatch, align)
    output = tmp_path / "o"
    printed = run(capsys, "align", mt_data, "--output", output)
    assert given["model"] == 3 and "aligner:eflomal-2.0,no-seed|model:3|" in printed
    for language in ("en", "de"):
        words = [[dictionary[int(token)] for token in line.split()] for line in given[language]]
        assert words == sentences(mt_data, language)
    # from 0-0: 1-0 and 1-1 give source 1 and target 1 a link, then 2-1 source 2, 2-2 target 2
    assert output.read_text() == "\n" + "0-0 1-0 1-1 2-1 2-2\n" * 79


@pytest.mark.parametrize("error", [subprocess.CalledProcessError(1, ["eflomal"]), OSError("no room")])
def test_an_aligner_that_fails(mt_data, tmp_path, capsys, monkeypatch, error):
    def align(*_):
        raise error

    fake_aligner(monkeypatch, align)
    output = tmp_path / "o"
    output.write_text("the old file")
    assert f"eflomal failed ({type(error).__name__}" in error_of(capsys, "align", mt_data, "--output", output)
    assert output.read_text() == "the old file"


def test_align_without_eflomal(mt_data, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "eflomal", None)
    error = error_of(capsys, "align", mt_data, "--output", tmp_path / "o")
    assert "align: eflomal is missing" in error and "pip install '.[align]'" in error
    assert "such as fast_align, in Pharaoh format to align-sim" in error
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-s", "fr"], "found no train.fr-Y.fr.bin but en-de"),
        (["-s", "de", "-t", "en"], "found no train.de-en.de.bin but en-de"),
        (["--output", "/dev/null/x"], "cannot write"),
    ],
)
def test_bad_options_of_align(mt_data, tmp_path, capsys, monkeypatch, arguments, words):
    fake_aligner(monkeypatch, None)
    assert words in error_of(capsys, "align", mt_data, "--output", tmp_path / "o", *arguments)


def test_align_a_folder_without_a_parallel_split(lm_data, tmp_path, capsys, monkeypatch):
    fake_aligner(monkeypatch, None)
    for data in (lm_data, tmp_path / "nowhere"):
        assert "found no train.X-Y.X.bin" in error_of(capsys, "align", data, "--output", tmp_path / "o")


@pytest.mark.parametrize("name", ["train.en-de.en.bin", "train.en-de.de.idx", "valid.en-de.de.bin", "dict.de.txt"])
def test_align_does_not_overwrite_the_data(mt_data, tmp_path, capsys, monkeypatch, name):
    """Nor by another way to the folder, nor through a link to a file."""
    fake_aligner(monkeypatch, None)
    (tmp_path / "folder").symlink_to(mt_data)
    (tmp_path / "file").symlink_to(mt_data / name)
    before = (mt_data / name).read_bytes()
    for data, output in (
        (mt_data, mt_data / name),
        (mt_data, tmp_path / "folder" / name),
        (tmp_path / "folder", mt_data / name),
        (mt_data, tmp_path / "file"),
    ):
        error = error_of(capsys, "align", data, "--output", output)
        assert f"--output: found {output}, a file of the data in {mt_data.resolve()}; name another" in error
    assert (mt_data / name).read_bytes() == before


def test_align_does_not_overwrite_data_that_are_links(mt_data, tmp_path, capsys, monkeypatch):
    fake_aligner(monkeypatch, None)
    for path in mt_data.iterdir():
        (tmp_path / path.name).symlink_to(path)
    output = tmp_path / "train.en-de.en.bin"
    assert "a file of the data" in error_of(capsys, "align", tmp_path, "--output", output)
    assert output.is_symlink()


def test_sigterm_leaves_nothing_behind(mt_data, tmp_path, monkeypatch):
    """eflomal is called by subprocess.run; the process that stands for it asks this one to end, and goes on."""
    folder, output, pid = tmp_path / "temporary", tmp_path / "o", tmp_path / "pid"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    def align(*_):
        with tempfile.NamedTemporaryFile():
            script = f"echo $$ > {pid}; sleep 0.3; kill -TERM {os.getpid()}; exec sleep 20"
            subprocess.run(["sh", "-c", script], check=True)

    fake_aligner(monkeypatch, align)
    ignored = lambda *_: None  # noqa: E731
    before = signal.signal(signal.SIGTERM, ignored)
    try:
        with pytest.raises(SystemExit) as stopped:
            main(["align", str(mt_data), "--output", str(output)])
        assert signal.getsignal(signal.SIGTERM) is ignored
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stopped.value.code == 128 + signal.SIGTERM
    assert not list(folder.iterdir()) and not output.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
