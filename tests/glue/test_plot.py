"""Every picture of `agg-fairseq plot`, of real runs: what is in it, and what is refused."""

import json
import shutil
import sys

import pytest

from agg_fairseq.cli.main import main
from agg_fairseq.cli.plot import PICTURES
from agg_fairseq.cli.runs import checkpoints_by_update
from agg_fairseq.errors import UserError


def plot(*arguments):
    return main(["plot", *map(str, arguments)])


@pytest.fixture(scope="session")
def eval_json(lm_runs, lm_data, tmp_path_factory):
    """What eval-lm says of both runs, and of a third with another rare fraction (the same weights)."""
    path = tmp_path_factory.mktemp("eval") / "eval.json"
    checkpoints = [str(lm_runs / name / "checkpoint_last.pt") for name in ("mle", "agg")]
    assert main(["eval-lm", str(lm_data), "--path", *checkpoints, "--json", str(path)]) == 0
    value = json.loads(path.read_text())
    other = json.loads(json.dumps(value["checkpoints"][1]))
    other["criterion"]["agg_rare_fraction"] = 0.6
    value["checkpoints"].append(other)
    path.write_text(json.dumps(value))
    return path


@pytest.fixture(scope="session")
def metrics_json(lm_data, tmp_path_factory):
    """What text-metrics says of two texts."""
    folder = tmp_path_factory.mktemp("texts")
    line = {"prefix": "w0", "continuation": "w0 w1 w2", "reference": "w3 w4 w0"}
    (folder / "a.jsonl").write_text(f"{json.dumps(line)}\n" * 2)
    arguments = ["text-metrics", folder / "a.jsonl", "--data", lm_data, "--json", folder / "metrics.json"]
    assert main([str(argument) for argument in arguments]) == 0
    return folder / "metrics.json"


@pytest.fixture
def inputs(lm_runs, lm_data, eval_json, metrics_json):
    """The arguments of each picture, but for --output."""
    runs = [lm_runs / "mle", lm_runs / "agg"]
    checkpoints, logs = ([run / file for run in runs] for file in ("checkpoint_last.pt", "train.log"))
    data = ["--data", lm_data]
    return {
        "projection": [*checkpoints, *data, "--groups", "frequency"],
        "singular-values": checkpoints,
        "isotropy": [*runs, *data],
        "inner-products": [*runs, *data],
        "rare-tokens": logs[1:],
        "learning-curves": logs,
        "alpha-sweep": [eval_json],
        "similarity": [*checkpoints, *data, "--words", "w0", "w5"],
        "frequencies": [lm_data],
        "token-shares": [metrics_json],
    }


WORDS = {
    "projection": ["mle", "agg", "frequent", "medium", "rare"],
    "singular-values": ["mle", "agg", "index"],
    "isotropy": ["mle", "agg", "I(W) frequent", "I(W) rare", "cosine of rare and frequent"],
    "inner-products": ["mle", "agg", "rare", "mean inner product"],
    "rare-tokens": ["agg", "updates"],
    "learning-curves": ["mle", "agg", "training", "valid", "perplexity"],
    "alpha-sweep": ["mle", "AGG", "perplexity, total", "Uniq, rare", "rare fraction"],
    "similarity": ["w0, mle", "w5, agg", "frequency rank"],
    "frequencies": ["bin", "rank", "occurrences"],
    "token-shares": ["a", "human", "frequent", "very rare"],
}


@pytest.mark.parametrize("picture", PICTURES)
def test_every_picture(picture, inputs, tmp_path, capsys):
    """Its words are in the SVG; drawn again it is the same file; PNG works too."""
    svg, png = tmp_path / "a.svg", tmp_path / "a.png"
    assert plot(picture, *inputs[picture], "-o", svg) == 0, capsys.readouterr().err
    text = svg.read_text()
    for words in WORDS[picture]:
        assert f"<!-- {words} -->" in text
    first = svg.read_bytes()
    assert plot(picture, *inputs[picture], "-o", svg) == 0
    assert svg.read_bytes() == first
    if picture == "projection":
        assert plot(picture, *inputs[picture], "-o", png) == 0
        assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_checkpoints_of_a_run_are_in_order(lm_runs):
    """checkpoint_last and the last of every 2 updates are the same: 2, 4 and 6 updates."""
    assert [updates for updates, _ in checkpoints_by_update(lm_runs / "mle")] == [2, 4, 6]


def test_refused(lm_runs, lm_data, inputs, tmp_path, capsys):
    def refuses(words, *arguments):
        assert plot(*arguments, "-o", tmp_path / "x.svg") == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1
        assert not (tmp_path / "x.svg").exists()

    checkpoint = lm_runs / "mle" / "checkpoint_last.pt"
    refuses("no token 'unheard'", "similarity", checkpoint, "--data", lm_data, "--words", "unheard")
    refuses("found no rare_tokens", "rare-tokens", lm_runs / "mle" / "train.log")
    refuses("found no 'dev' lines", "learning-curves", lm_runs / "mle" / "train.log", "--valid-subset", "dev")
    refuses("neither dict.txt nor", "frequencies", tmp_path)
    refuses("found no checkpoint*.pt", "isotropy", tmp_path, "--data", lm_data)
    refuses("no such folder", "isotropy", tmp_path / "none", "--data", lm_data)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(checkpoint, alone)
    refuses("checkpoints of 1 update", "inner-products", alone, "--data", lm_data)
    bad = tmp_path / "bad.json"
    for content, words in (
        ("[1", "unreadable"),
        ("[]", "found no 'checkpoints'"),
        ('{"checkpoints": [1]}', "found no 'checkpoints'"),
        ('{"checkpoints": [{"name": "a"}]}', "found 0 models of AGG"),
    ):
        bad.write_text(content)
        refuses(words, "alpha-sweep", bad)
    value = json.loads(inputs["token-shares"][0].read_text())
    value["human"]["shares"] = None
    bad.write_text(json.dumps(value))
    refuses("found no shares of human", "token-shares", bad)


def test_without_matplotlib(lm_runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert plot("singular-values", lm_runs / "mle" / "checkpoint_last.pt", "-o", tmp_path / "x.svg") == 2
    assert "matplotlib is missing; pip install" in capsys.readouterr().err


def test_updates_of_an_unreadable_run(tmp_path):
    (tmp_path / "checkpoint1.pt").write_text("no checkpoint")
    with pytest.raises(UserError, match="no readable checkpoint"):
        checkpoints_by_update(tmp_path)
