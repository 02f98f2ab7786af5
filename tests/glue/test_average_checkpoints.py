"""The `average-checkpoints` command, on checkpoints as fairseq's trainer saves them."""

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble
from fairseq.trainer import Trainer

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint, allow_namespaces
from agg_fairseq.cli.main import main
from agg_fairseq.models.from_checkpoint import build_model
from tests.small_trainings import LM, MT, build

F2 = ["transformer_lm_f2" if option == "transformer_lm" else option for option in LM]
OUTPUT = "decoder.output_projection.weight"


def save(data, folder, name, *arguments, base=LM, updates=0):
    """A checkpoint of a model whose weights no other has, with the state of an optimizer that has taken a step."""
    cfg, task, model, criterion = build(data, *arguments, base=base)
    trainer = Trainer(cfg, task, model, criterion)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(updates))
        parameter.grad = torch.zeros_like(parameter)
    trainer.optimizer.step()
    trainer.set_num_updates(updates)
    trainer.consolidate_optimizer()
    extra = task.get_checkpoint_dict() if hasattr(task, "get_checkpoint_dict") else {}
    iterator = {"version": 2, "epoch": 2, "iterations_in_epoch": 0, "shuffle": True}
    trainer.save_checkpoint(str(folder / name), {"train_iterator": iterator, "val_loss": 5.25, **extra})
    return folder / name


@pytest.fixture(scope="module")
def run(lm_data, tmp_path_factory):
    """A folder as fairseq-train leaves it: epochs 8 to 11, updates 90 and 100, the best and the last."""
    folder = tmp_path_factory.mktemp("run")
    names = {f"checkpoint{epoch}.pt": 10 * epoch for epoch in (8, 9, 10, 11)}
    names |= {"checkpoint_8_90.pt": 90, "checkpoint_9_100.pt": 100, "checkpoint_best.pt": 7, "checkpoint_last.pt": 110}
    for name, updates in names.items():
        save(lm_data, folder, name, "--criterion", "agg", updates=updates)
    return folder


def average(*arguments):
    return main(["average-checkpoints", *map(str, arguments)])


def rows(printed):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]


def models(run, *names):
    return [torch.load(run / name, weights_only=True)["model"] for name in names]


def mean_of(*states):
    return {name: sum(state[name] for state in states) / len(states) for name in states[0]}


def assert_equal(found, expected):
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--last", 2), ("checkpoint11.pt", "checkpoint10.pt")),
        (("--last", 4, "--by", "epoch"), ("checkpoint11.pt", "checkpoint10.pt", "checkpoint9.pt", "checkpoint8.pt")),
        (("--last", 2, "--by", "update"), ("checkpoint_9_100.pt", "checkpoint_8_90.pt")),
    ],
)
def test_last_of_a_run(run, tmp_path, capsys, options, names):
    output = tmp_path / "new folder" / "average.pt"
    assert average(run, *options, "--output", output) == 0
    table = rows(capsys.readouterr().out)[2:]
    assert [row[0] for row in table] == [str(run / name) for name in names]
    assert table[0][2] == "5.250"
    assert_equal(Checkpoint(output).state["model"], mean_of(*models(run, *names)))


def test_checkpoints_by_name(run, tmp_path):
    names = ("checkpoint_best.pt", "checkpoint9.pt", "checkpoint_last.pt")
    assert average(*(run / name for name in names), "--output", tmp_path / "average.pt") == 0
    state = Checkpoint(tmp_path / "average.pt").state
    assert_equal(state["model"], mean_of(*models(run, *names)))
    assert state["optimizer_history"][-1]["num_updates"] == 7


def test_what_else_is_in_the_checkpoint(run, tmp_path):
    """All of the newest, but what only that one run could go on from."""
    newest = torch.load(run / "checkpoint11.pt", weights_only=True)
    assert newest["extra_state"]["LanguageModelingTask"]["agg_fairseq"]  # else this test shows nothing
    newest["extra_state"]["ema"] = newest["model"]
    torch.save(newest, tmp_path / "checkpoint2.pt")
    torch.save(torch.load(run / "checkpoint10.pt", weights_only=True), tmp_path / "checkpoint1.pt")
    assert average(tmp_path, "--last", 2, "--output", tmp_path / "average.pt") == 0
    found = torch.load(tmp_path / "average.pt", weights_only=True)
    assert set(found) == set(newest) and found["last_optimizer_state"] is None
    kept = ("args", "cfg", "criterion", "optimizer_history", "task_state")
    assert [found[key] for key in kept] == [newest[key] for key in kept]
    assert found["extra_state"]["LanguageModelingTask"] == {} and "ema" not in found["extra_state"]
    assert set(newest["extra_state"]) - set(found["extra_state"]) == {"ema"}
    assert found["extra_state"]["train_iterator"] == newest["extra_state"]["train_iterator"]


def test_tied_embeddings_stay_tied(lm_data, tmp_path):
    tied = "--share-decoder-input-output-embed"
    paths = [save(lm_data, tmp_path, f"{n}.pt", "--criterion", "mle", tied, updates=n) for n in (1, 2)]
    assert average(*paths, "--output", tmp_path / "average.pt") == 0
    parameters = torch.load(tmp_path / "average.pt", weights_only=True)["model"]
    assert parameters[OUTPUT].data_ptr() == parameters["decoder.embed_tokens.weight"].data_ptr()
    assert build_model(Checkpoint(tmp_path / "average.pt"), lm_data)[0].decoder.output_projection.weight.requires_grad


def test_fairseq_goes_on_from_it(run, lm_data, tmp_path):
    """As --finetune-from-model and as --restore-file; the criterion may be another."""
    average(run, "--last", 3, "--output", tmp_path / "average.pt")
    expected = Checkpoint(tmp_path / "average.pt").state["model"]
    for reset in (True, False):
        trainer = Trainer(*build(lm_data, "--criterion", "mle"))
        trainer.load_checkpoint(str(tmp_path / "average.pt"), reset, reset, reset_meters=reset)
        assert_equal(trainer.model.state_dict(), expected)
    models, _ = load_model_ensemble([str(tmp_path / "average.pt")], arg_overrides={"data": str(lm_data)})
    assert_equal(models[0].state_dict(), expected)


def test_translation_model_of_an_older_task(mt_data, tmp_path):
    """Its options are a Namespace."""
    allow_namespaces()
    paths = [
        save(mt_data, tmp_path, f"{n}.pt", "--criterion", "mle", "-s", "en", "-t", "de", base=MT, updates=n)
        for n in (1, 2)
    ]
    assert average(*paths, "--output", tmp_path / "average.pt") == 0
    model, _ = build_model(Checkpoint(tmp_path / "average.pt"), mt_data)
    assert_equal(model.state_dict(), mean_of(*(torch.load(path, weights_only=True)["model"] for path in paths)))


def test_factorized_softmax(lm_data, tmp_path, capsys):
    """The classes have no mean, and must be the same."""
    arguments = ("--criterion", "f2_softmax", "--f2-classes", 4, "--f2-assignment")
    paths = [save(lm_data, tmp_path, f"{n}.pt", *arguments, "equal-token", base=F2, updates=n) for n in (1, 2)]
    assert average(*paths, "--output", tmp_path / "average.pt") == 0
    found, before = (Checkpoint(path).parameters for path in (tmp_path / "average.pt", paths[0]))
    name = OUTPUT.replace("weight", "class_of_token")
    assert torch.equal(found[name], before[name]) and len(found[name].unique()) == 4
    build_model(Checkpoint(tmp_path / "average.pt"), lm_data)
    other = save(lm_data, tmp_path, "3.pt", *arguments, "equal-frequency", base=F2, updates=3)
    capsys.readouterr()
    assert average(paths[0], other, "--output", tmp_path / "new.pt") == 2
    assert f"{other}: found another {name} than in {paths[0]}" in capsys.readouterr().err
    assert not (tmp_path / "new.pt").exists()


def changed(run, target, change):
    state = torch.load(run / "checkpoint9.pt", weights_only=True)
    change(state)
    torch.save(state, target)
    return target


def diverge(state):
    state["model"][OUTPUT][3, 0] = float("nan")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (diverge, f"found an infinity or NaN in {OUTPUT}: a diverged run"),
        (lambda state: state["model"].pop(OUTPUT), f"found {OUTPUT}, which"),
        (lambda state: state["model"].update({OUTPUT: torch.zeros(2, 2)}), f"found {OUTPUT} of shape (2, 2), but"),
    ],
)
def test_checkpoints_that_cannot_be_averaged(run, tmp_path, capsys, change, words):
    bad, output = changed(run, tmp_path / "bad.pt", change), tmp_path / "average.pt"
    output.write_text("the old file")
    assert average(run / "checkpoint8.pt", bad, "--output", output) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "bad.pt" in error and words in error
    assert output.read_text() == "the old file" and not list(tmp_path.glob(".*"))


def test_bad_arguments(run, tmp_path, capsys):
    a, b, new = run / "checkpoint8.pt", run / "checkpoint9.pt", tmp_path / "new.pt"
    linked = tmp_path / "linked.pt"
    linked.symlink_to(a)
    cases = [
        ((run,), "expected it alone and with --last N"),
        ((run, a, "--last", 2), "expected it alone and with --last N"),
        ((a, b, "--last", 2), "--last, --by: found no folder"),
        ((a, b, "--by", "update"), "--last, --by: found no folder"),
        ((tmp_path / "none", "--last", 2), "--last, --by: found no folder"),
        ((a,), "found one checkpoint"),
        ((a, tmp_path / "none.pt"), "found no such file"),
        ((run, "--last", 1), "expected at least two"),
        ((run, "--last", 5), "found 4 of the form checkpoint<epoch>.pt; expected 5"),
        ((run, "--last", 3, "--by", "update"), "found 2 of the form checkpoint_<epoch>_<update>.pt"),
        ((a, b, a), "twice"),
    ]
    for arguments, words in cases:
        assert average(*arguments, "--output", new) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1
        assert not new.exists()
    for output in (tmp_path, "/dev/null/x"):  # said before the inputs are read
        assert average(a, tmp_path / "none.pt", "--output", output) == 2
        assert "cannot write" in capsys.readouterr().err
    before = linked.stat().st_mtime_ns
    for output, words in [(linked, "which is averaged"), (tmp_path, "cannot write"), ("/dev/null/x", "cannot write")]:
        assert average(a, b, "--output", output) == 2
        assert words in capsys.readouterr().err
    assert linked.stat().st_mtime_ns == before
