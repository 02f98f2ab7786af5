"""Runs reproduce.sh in this process, with models of a few updates, and its trainings without starting Python anew."""

import contextlib
import io
import os
import shlex
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest

from scripts.command import run
from scripts.data import same_tokens, translation, wikitext
from scripts.experiments import __main__ as experiments
from scripts.experiments import measures, training
from scripts.training import train
from tests.commands import table
from tests.conftest import ROOT
from tests.forking import run_forked
from tests.preparing import binarize_here

SMALL = (
    "optimization.max_update=6", "checkpoint.save_interval_updates=3", "common.log_interval=1", "dataset.num_workers=0",
    "model.decoder_embed_dim=16", "model.decoder_ffn_embed_dim=16",
)  # fmt: skip
LM = (*SMALL, "model.decoder_layers=1", "model.decoder_input_dim=16", "model.decoder_output_dim=16")
MT = (
    *SMALL, "checkpoint.save_interval_updates=1", "model.encoder_layers=1", "model.encoder_embed_dim=16",
    "model.encoder_ffn_embed_dim=16",
)  # fmt: skip


class ForkedTraining:
    """What `training.py` starts by `Popen`: train.sh in this process as a dry run, then its command, forked."""

    def __init__(self, command, env, **options):
        assert command[:2] == ["bash", str(ROOT / "scripts" / "train.sh")]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run("train", lambda: train.main([*command[2:], "--dry-run"]))
        result = CompletedProcess(command, status, "", "")
        if not status:
            program, *arguments = shlex.split(out.getvalue())
            result = run_forked([os.path.basename(program), *arguments], cwd=os.getcwd(), env=env, timeout=1800)
        self.returncode = result.returncode
        self.stdout = io.BytesIO(f"{err.getvalue()}{result.stdout}{result.stderr}".encode())

    def wait(self):
        return self.returncode

    def terminate(self):
        pass


def generate_forked(command, stdout, stderr, **options):
    result = run_forked([os.path.basename(command[0]), *command[1:]], cwd=os.getcwd(), env=os.environ, timeout=1800)
    stdout.write(result.stdout.encode())
    stderr.write(result.stderr.encode())
    return result


def reproduce(*arguments, check=True, cwd=ROOT):
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setattr(training, "subprocess", SimpleNamespace(Popen=ForkedTraining, PIPE=None, STDOUT=None))
        patch.setattr(measures, "subprocess", SimpleNamespace(run=generate_forked))
        for program in (wikitext, translation, same_tokens):
            patch.setattr(program, "binarize", binarize_here)
        patch.setenv("OMP_NUM_THREADS", "1")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run("reproduce", lambda: experiments.main(list(map(str, arguments))))
    if check:
        assert status == 0, f"{out.getvalue()[-3000:]}\n{err.getvalue()[-3000:]}"
    return CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def rows(text):
    """The cells of a printed table by the first one of each line, that of the titles too."""
    header, body = table(text)
    return {row[0]: row[1:] for row in (header, *body)}


def head_of(source, target, names, lines):
    target.mkdir()
    for name in names:
        count = next(count for part, count in lines.items() if part in name)
        text = (source / name).read_text(encoding="utf-8").split("\n")[:count]
        (target / name).write_text("\n".join(text) + "\n", encoding="utf-8")
    return target
