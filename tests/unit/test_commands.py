"""Commands that need no checkpoint: help, `doctor`, and what is printed of errors."""

import argparse
import subprocess
import sys

import pytest
import torch

from agg_fairseq.cli import doctor
from agg_fairseq.cli.main import COMMANDS, build_parser, main
from agg_fairseq.errors import first_line


def parsers(parser):
    """A parser and those of its sub-commands."""
    yield parser
    for action in parser._actions:
        for command in (
            action.choices.values() if isinstance(action, argparse._SubParsersAction) else ()
        ):
            yield from parsers(command)


def test_every_argument_has_a_help():
    """Which can be formatted, with its default."""
    for parser in parsers(build_parser(COMMANDS)):
        assert parser.format_help() and parser.description
        assert all(action.help or action.nargs == argparse.PARSER for action in parser._actions), (
            parser.prog
        )


def test_the_doctor_says_what_cannot_work(capsys, monkeypatch):
    class Distribution:
        version = "2.6"

    monkeypatch.setattr(doctor, "IMPORTED", {"torch": ""})
    monkeypatch.setattr(doctor.importlib.metadata, "distributions", lambda name: [Distribution])
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "ve-fairseq and fairseq install the same",
        "--load-checkpoint-on-all-dp",
        "numpy<2",
    ):
        assert words in printed


def test_the_doctor_runs_without_torch():
    program = "import sys; sys.modules['torch'] = None; from agg_fairseq.cli.main import main; sys.exit(main())"
    result = subprocess.run(
        [sys.executable, "-c", program, "doctor"], capture_output=True, text=True
    )
    assert result.returncode == 1 and "error: torch cannot be imported" in result.stdout
    assert "training with fairseq: not ready" in result.stdout and "Traceback" not in result.stderr


def test_the_line_of_an_error_has_the_parameters_that_do_not_fit():
    """torch lists them below its first line."""
    with pytest.raises(RuntimeError) as caught:
        torch.nn.Linear(2, 3).load_state_dict(
            {"weight": torch.zeros(4, 2), "scale": torch.zeros(1)}
        )
    line = first_line(caught.value)
    assert "\n" not in line and line.startswith(
        "RuntimeError: Error(s) in loading state_dict for Linear:"
    )
    assert '"bias"' in line and '"scale"' in line and "torch.Size([4, 2])" in line
    assert first_line(ValueError("one\ntwo")) == "ValueError: one"


def test_whoever_reads_may_go():
    """As in `agg-fairseq … | head -0`: no traceback at the end."""
    program = "import time; time.sleep(1); from agg_fairseq.cli.main import main; raise SystemExit(main(['user-dir']))"
    command = f'"{sys.executable}" -c "{program}" | true; exit ${{PIPESTATUS[0]}}'
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
