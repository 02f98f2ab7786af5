"""Commands that need no checkpoint: help, `doctor`, and what is printed of errors."""

import argparse
import math
import os
import subprocess
import sys

import pytest
import torch

from agg_fairseq.cli import doctor
from agg_fairseq.cli.main import COMMANDS, build_parser, main
from agg_fairseq.cli.options import OPTIONS, descriptions
from agg_fairseq.errors import first_line


def parsers(parser):
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)


def test_every_argument_has_a_help():
    for parser in parsers(build_parser(COMMANDS)):
        assert parser.format_help() and parser.description
        for action in parser._actions:
            assert action.help or action.nargs == argparse.PARSER, parser.prog


def test_the_help_of_options_is_that_of_parameters():
    def function(first, topk=None):
        """Has a summary.

        Args:
            first: one of `a` and
                `b: c`.
            topk: K of them; None: all.

        Returns:
            result: another.
        """

    expected = {"first": "one of a and b: c", "topk": "K of them; default: all"}
    assert descriptions(function) == expected
    assert descriptions(lambda first: first) == {}


RANGES = {name: option["type"] for name, option in OPTIONS.items() if "type" in option}


@pytest.mark.parametrize("name", RANGES)
def test_a_number_out_of_range_is_refused_in_one_line(name, capsys):
    option, values = f"--{name.replace('_', '-')}", ["nan", "inf", "x", RANGES[name].least - 1]
    values += [RANGES[name].least] * ("(" in RANGES[name].ends)
    values += [RANGES[name].most + (")" not in RANGES[name].ends)] * (RANGES[name].most < math.inf)
    found = 0
    for parser in parsers(build_parser(COMMANDS)):
        action = next((one for one in parser._actions if option in one.option_strings), None)
        if action is None:
            continue
        found += 1
        assert str(RANGES[name]) in action.help
        for value in values:
            with pytest.raises(SystemExit) as stop:
                parser.parse_args([option, str(value)])
            error = capsys.readouterr().err
            assert stop.value.code == 2 and error.count("\n") == 1
            assert f"argument {option}: found '{value}'; expected a" in error
    assert found


def test_a_fault_shows_its_traceback_on_demand(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "run", lambda arguments: torch.ones(2) @ torch.ones(3))
    assert main(["doctor"]) == 2 and "AGG_DEBUG=1 shows the traceback" in capsys.readouterr().err
    monkeypatch.setenv("AGG_DEBUG", "1")
    with pytest.raises(RuntimeError, match="size"):
        main(["doctor"])


def test_the_doctor_says_what_cannot_work(capsys, monkeypatch):
    class Distribution:
        version = "2.6"

    monkeypatch.setattr(doctor, "IMPORTED", {"torch": ""})
    monkeypatch.setattr(doctor.importlib.metadata, "distributions", lambda name: [Distribution])
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "ve-fairseq and fairseq install the same" in printed
    assert "--load-checkpoint-on-all-dp" in printed and "numpy<2" in printed


def test_the_doctor_runs_without_torch():
    program = "import sys; sys.modules['torch'] = None; from agg_fairseq.cli.main import main; sys.exit(main())"
    result = subprocess.run(
        [sys.executable, "-c", program, "doctor"], capture_output=True, text=True
    )
    assert result.returncode == 1 and "error: torch cannot be imported" in result.stdout
    assert "training with fairseq: not ready" in result.stdout and "Traceback" not in result.stderr


def test_the_line_of_an_error_has_the_parameters_that_do_not_fit():
    state = {"weight": torch.zeros(4, 2), "scale": torch.zeros(1)}
    with pytest.raises(RuntimeError) as caught:
        torch.nn.Linear(2, 3).load_state_dict(state)
    line = first_line(caught.value)
    assert "\n" not in line
    assert line.startswith("RuntimeError: Error(s) in loading state_dict for Linear:")
    assert '"bias"' in line and '"scale"' in line and "torch.Size([4, 2])" in line
    assert first_line(ValueError("one\ntwo")) == "ValueError: one"


def test_whoever_reads_may_go():
    """As in `agg-fairseq … | head -0`: no traceback at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "agg_fairseq", "user-dir"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (result.returncode, result.stderr) == (0, "")
