"""A training that is killed and goes on equals the one that was not, bit for bit.

fairseq-train runs in processes that end themselves with SIGKILL at a moment counted in events, not
in seconds. A moment is a pair of an event and its number, from 1:

    update      the gradients are there, the step is not taken
    validation  a batch is about to be validated
    written     a checkpoint is in its temporary file, which is about to be renamed
    renamed     that was renamed
"""

import json
import os
import random
import re
import signal
import sys
from pathlib import Path

import pytest
import torch
from fairseq.tasks import FairseqTask
from fairseq_cli.train import cli_main

from agg_fairseq.checkpoints.fairseq_checkpoint import Checkpoint
from agg_fairseq.modules.token_counter import saved_slots, unpack
from tests.conftest import ROOT, SMALL_LM, USER_DIR, options_of_workers
from tests.forking import run_together

pytestmark = pytest.mark.slow  # processes of their own
KILLED = -signal.SIGKILL
LM = [*SMALL_LM, "--max-tokens", "128", "--dropout", "0.1"]
SAVED_EVERY_SECOND_UPDATE = "--max-update 13 --save-interval-updates 2 --save-interval 9".split()
AGG = ("--criterion", "agg", "--agg-rare-fraction", "0.3")
TIMES = {"previous_training_time", "wall", "wps", "ups", "train_wall"}
MT = ("--task", "translation", "--arch", "transformer_tiny", *LM[LM.index("--optimizer") :])


def options(data, save, *more, base=LM):
    return [
        data, "--user-dir", USER_DIR, *base, *SAVED_EVERY_SECOND_UPDATE, "--save-dir", save, *more,
    ]  # fmt: skip


def train(arguments, log, moment=None):
    """The exit status of fairseq-train. What it printed is in `log`, and in `log`.targets the
    tokens of each update."""
    return run_together(run_worker, (arguments, log, moment))[0]


def train_by_two(arguments, log, moment=None):
    """The exit status of the first of two workers over gloo; the other one ends as it does."""
    shared = [*arguments, "--ddp-backend", "legacy_ddp", "--load-checkpoint-on-all-dp-ranks"]
    first, second = ([*shared, *options] for options in options_of_workers(Path(log).parent))
    calls = (first, f"{log}.0", moment), (second, f"{log}.1", None)
    statuses = run_together(run_worker, *calls)
    assert moment or statuses == [0, 0]
    return statuses[0]


def run_worker(arguments, log, moment):
    with open(log, "ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.argv = ["fairseq-train", *map(str, arguments)]
    train_step = FairseqTask.train_step

    def recorded(task, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        if not ignore_grad:
            target = sample["target"]
            tokens = target[target != task.target_dictionary.pad()].tolist()
            with open(f"{log}.targets", "a") as file:
                file.write(json.dumps({"update": update_num, "tokens": tokens}) + "\n")
        return train_step(task, sample, model, criterion, optimizer, update_num, ignore_grad)

    FairseqTask.train_step = recorded
    if moment is not None:
        event, number = moment
        steps = {"update": "optimizer_step", "validation": "valid_step"}
        owner, name = (FairseqTask, steps[event]) if event in steps else (os, "replace")
        kill_writer(number, owner, name, after=event == "renamed")
    cli_main()


def kill_writer(number, owner, name, after):
    """Makes the process kill itself at a call of a function; of `os.replace`, only calls for
    checkpoints count."""
    original, left = getattr(owner, name), number

    def counted(*arguments, **named):
        nonlocal left
        if owner is not os or re.fullmatch(r"checkpoint.*\.pt", os.path.basename(arguments[1])):
            left -= 1
        if left == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **named)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)


def saved(folder):
    return Checkpoint(folder / "checkpoint_last.pt").state


def logged(log):
    """The JSON lines of a log by what they are about, less times; of an update done twice, both
    have to agree."""
    found = {}
    for line in open(log):
        values = {}
        if (start := line.find('{"')) >= 0:
            for key, value in json.loads(line[start:]).items():
                if re.sub("^(train|valid)_", "", key) not in TIMES:
                    values[key] = value
            (key,) = values.keys() & {"update", "train_num_updates", "valid_num_updates"}
            assert found.setdefault((key, values[key]), values) == values
    return found


def assert_same(found, expected, path=""):
    """Two saved values are equal, but for the states of meters of times."""
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and torch.equal(found, expected), path
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for key, value in expected.items():
            assert_same(found[key], value, f"{path}/{key}")
    elif isinstance(expected, list | tuple):
        if len(expected) != 4 or expected[1] not in TIMES:
            assert_same(dict(enumerate(found)), dict(enumerate(expected)), path)
    else:
        assert found == expected, path


def lasting(state):
    """A checkpoint without its times, and what fairseq begins anew at each start: options, list of
    the starts, sums."""
    extra = {key: value for key, value in state["extra_state"].items() if key not in TIMES}
    # sums over the life of a process; what is logged of each validation is compared
    for name in ("default", "valid"):
        extra["metrics"].pop(name, None)
    history = state["optimizer_history"][-1]
    return {**state, "cfg": None, "extra_state": extra, "optimizer_history": history}


def interrupted(folder, data, moment, *more, by=train, base=LM):
    """The folder of a training, and that of another one with the same options, which is killed at a
    moment and goes on; both have to be equal, with nothing unfinished."""
    whole, run = folder / "whole", folder / "run"
    assert by(options(data, whole, *more, base=base), f"{whole}.log") == 0
    arguments = options(data, run, *more, base=base)
    assert by(arguments, f"{run}.log", moment) == KILLED
    for path in run.glob("*.tmp"):
        path.write_bytes(path.read_bytes()[:20_000])  # as if it had been killed while it wrote
    for path in run.glob("*.pt"):
        assert Checkpoint(path).state
    assert by(arguments, f"{run}.log") == 0
    assert {path.name for path in run.iterdir()} == {path.name for path in whole.iterdir()}
    # Weights, optimizer, schedule, counts, position in the data and what of the meters lasts; the
    # logged numbers
    assert_same(lasting(saved(run)), lasting(saved(whole)))
    suffix = "log" if by is train else "log.0"
    assert logged(f"{run}.{suffix}") == logged(f"{whole}.{suffix}") != {}
    return whole, run


AWD = (
    "--user-dir", ROOT / "examples" / "awd_lstm",
    *"--task language_modeling_streams --arch awd_lstm_lm --decoder-layers 2 --decoder-embed-dim 16".split(),
    *"--decoder-hidden-size 24 --tokens-per-sample 16 --max-tokens 96 --clip-norm 0.25 --weight-decay 0.001".split(),
    *SMALL_LM[SMALL_LM.index("--cpu") :], *"--optimizer nt_asgd --lr 20".split(),
)  # fmt: skip
OF_AGG = "--criterion agg --agg-rare-fraction 0.3 "
VARIANTS = {
    "face, another β₂ of the embedding, two batches per update, seed of the epoch":
        "--criterion face --optimizer embedding_adam --embedding-beta2 0.9 --update-freq 2 "
        "--update-ordered-indices-seed",
    "f2_softmax, coupled adam, schedule, sparse log":
        "--criterion f2_softmax --arch transformer_lm_f2 --optimizer coupled_adam --weight-decay "
        "0.1 --lr-scheduler inverse_sqrt --warmup-updates 4 --log-interval 3",
    "freeze_rare, sharded data": "--criterion freeze_rare --freeze-fraction 0.4 --weight-decay 0.1",
    "static group, current batch, batches of the epoch":
        OF_AGG + "--agg-static-after-epoch 1 --agg-count-current-batch --update-epoch-batch-itr True",
    "translation, log-unigram bias, moving average":
        OF_AGG + "--arch transformer_unigram_tiny --store-ema --ema-decay 0.9",
    "awd-lstm, averaged after validations": OF_AGG + "--asgd-patience 1",
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_a_killed_training_goes_on_bit_for_bit(name, lm_data, mt_data, tmp_path):
    """With dropout. The second epoch begins with the eighth of 13 updates."""
    data, base = lm_data, LM
    if "translation" in name:
        data, base = mt_data, MT
    elif "sharded" in name:
        data = f"{lm_data}{os.pathsep}{lm_data}"
    elif name.startswith("awd-lstm"):
        base = AWD
    more = VARIANTS[name].split()
    whole, run = interrupted(tmp_path, data, ("update", 11), *more, base=base)
    log = Path(f"{run}.log").read_text()
    assert "null" not in log and '"ppl": "0"' not in log
    assert saved(whole)["optimizer_history"][-1]["num_updates"] == 13


def test_two_killed_workers_go_on_bit_for_bit(lm_data, tmp_path):
    """An epoch is 4 updates; the second worker goes with the first, while it writes a
    checkpoint."""
    interrupted(tmp_path, lm_data, ("written", 6), *AGG, by=train_by_two)


def test_kills_at_random_moments_leave_no_trace(lm_data, tmp_path, request):
    whole, run = tmp_path / "whole", tmp_path / "run"
    generator = random.Random(request.config.option.hypothesis_seed)
    more = (*AGG, "--max-update", "35")  # more than five lives can reach
    assert train(options(lm_data, whole, *more), f"{whole}.log") == 0
    for _ in range(5):
        event = generator.choice(["update", "validation", "written", "renamed"])
        moment = event, generator.randint(1, 5)
        assert train(options(lm_data, run, *more), f"{run}.log", moment) == KILLED, moment
    assert train(options(lm_data, run, *more), f"{run}.log") == 0
    assert_same(lasting(saved(run)), lasting(saved(whole)))
    found, expected = logged(f"{run}.log"), logged(f"{whole}.log")
    for key, values in expected.items():
        # the means of an epoch are logged after its last checkpoint: a kill between leaves them out
        is_left_out = key not in found and key[0] == "train_num_updates"
        assert is_left_out or found.pop(key) == values
    assert not found


@pytest.mark.parametrize("order", [(train, train_by_two), (train_by_two, train)])
def test_counts_are_right_with_another_number_of_workers(order, lm_data, tmp_path):
    """They are those of the batches that the updates of the window were trained on."""
    run = tmp_path / "run"
    for part, (by, updates) in enumerate(zip(order, (5, 8), strict=True)):
        per_update = "1" if by is train_by_two else "2"
        more = (*AGG, "--max-update", updates, "--update-freq", per_update, "--disable-validation")
        assert by(options(lm_data, run, *more), tmp_path / f"{part}.log") == 0
    expected = {}  # by update, the tokens of all batches and workers
    for path in tmp_path.glob("*.targets"):
        for line in map(json.loads, open(path)):
            expected.setdefault(line["update"], []).extend(line["tokens"])
    state = saved(run)["extra_state"]["LanguageModelingTask"]["agg_fairseq"]
    assert state["open_update"] == max(expected) == 7
    (counter,) = state["gating"]["counter._extra_state"]
    assert counter["window"] == len(slots := saved_slots(counter)) == 4
    for update, (packed, _) in enumerate(slots, 3):
        tokens, times = unpack(packed)
        assert tokens.repeat_interleave(times).tolist() == sorted(expected[update])
    current = torch.bincount(torch.tensor(expected[7]), minlength=len(counter["current"]))
    assert counter["current"].equal(current)


def test_fine_tuning_from_mle_starts_with_an_empty_window(lm_data, tmp_path):
    mle, tuned = tmp_path / "mle", tmp_path / "tuned"
    likelihood = ("--criterion", "mle", "--max-update", "3")
    assert train(options(lm_data, mle, *likelihood), f"{mle}.log") == 0
    own = ("--finetune-from-model", mle / "checkpoint_best.pt")
    new = ("--reset-optimizer", "--reset-lr-scheduler")
    for folder, updates, more, words in (
        (tuned, "2", own, "agg: the counts start empty at update 0"),
        (tuned, "4", own, "agg: restored the counts of 1 updates"),
        (mle, "5", new, "agg: the counts start empty at update 0"),
    ):
        log = tmp_path / f"{updates}.log"
        assert train(options(lm_data, folder, *AGG, *more, "--max-update", updates), log) == 0
        assert words in log.read_text()
    assert '"rare_tokens": "' in log.read_text()
