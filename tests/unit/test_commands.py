"""Commands that need no checkpoint: help, `doctor`, and what is printed of errors."""

import argparse
import importlib
import inspect
import re

import pytest
import torch

from agg_fairseq.checkpoints import averaging
from agg_fairseq.cli import doctor
from agg_fairseq.cli.main import COMMANDS, build_parser, main
from agg_fairseq.cli.options import OPTIONS, Function, Range
from agg_fairseq.f2 import decoupled_decoding
from tests.conftest import run_command


def parsers(parser):
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)


def test_every_argument_has_a_help():
    """Which shows the range of a number."""
    for parser in parsers(build_parser(COMMANDS)):
        assert parser.format_help() and parser.description
        for action in parser._actions:
            assert action.help or action.nargs == argparse.PARSER, parser.prog
            if accepted := OPTIONS.get(action.dest, {}).get("type"):
                assert action.type == accepted and str(accepted) in action.help, action


def test_options_are_parameters_of_functions():
    """As the source of a function says them, and as it is."""
    for path in (
        ("evaluation.perplexity", "perplexity"), ("data.subwords", "TokenizerOptions"),
        ("report", "write_report"),
    ):  # fmt: skip
        function = Function(*path)
        module = importlib.import_module(f"agg_fairseq.{function.module}")
        found = inspect.signature(getattr(module, function.name)).parameters
        assert list(function.parameters) == list(found)
        for name, default in function.parameters.items():
            if found[name].default is inspect.Parameter.empty:
                assert default is ...
            elif not isinstance(default, str):
                assert default == found[name].default
    assert OPTIONS["by"]["choices"] == tuple(averaging.CHECKPOINT_NAMES)
    assert OPTIONS["f2_decoding"]["choices"] == decoupled_decoding.DECODINGS


def test_help_imports_neither_torch_nor_numpy():
    """Nor anything else that takes longer than to read the help."""
    program = """
import contextlib, io, sys
from agg_fairseq.cli import main, plot
for command in (*main.COMMANDS, *(f"plot {picture}" for picture in plot.PICTURES)):
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main.main([*command.split(), "--help"])
print(*{name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"__main__"})
"""
    imported = run_command("python", "-c", program).stdout.split()
    assert "agg_fairseq" in imported and not {"torch", "numpy", "fairseq", "tqdm"} & {*imported}


@pytest.mark.parametrize(
    ("accepted", "inside", "outside", "words"),
    [
        (Range(int, 1), "1 7", "0 -1 2.5 nan inf x", "a whole number of 1 or more"),
        (Range(float, 0, ends="("), "1e-9 7", "0 -1 nan inf x", "a number above 0"),
        (Range(float, 0, 1), "0 0.5 1", "-0.1 1.1 nan", "a number in [0, 1]"),
        (Range(float, 0, 1, "()"), "0.5", "0 1 nan", "a number in (0, 1)"),
    ],
)
def test_a_number_out_of_range_is_refused(accepted, inside, outside, words):
    for text in inside.split():
        assert accepted(text) == float(text)
    for text in outside.split():
        expected = re.escape(f"found '{text}'; expected {words}")
        with pytest.raises(argparse.ArgumentTypeError, match=expected):
            accepted(text)


def test_a_fault_shows_its_traceback_on_demand(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "run", lambda arguments: torch.ones(2) @ torch.ones(3))
    assert main(["doctor"]) == 2 and "AGG_DEBUG=1 shows the traceback" in capsys.readouterr().err
    monkeypatch.setenv("AGG_DEBUG", "1")
    with pytest.raises(RuntimeError, match="size"):
        main(["doctor"])


def test_the_doctor_runs_without_torch():
    program = "import sys; sys.modules['torch'] = None; from agg_fairseq.cli.main import main; sys.exit(main())"
    result = run_command("python", "-c", program, "doctor", check=False)
    assert result.returncode == 1 and "error: torch cannot be imported" in result.stdout
    assert "training with fairseq: not ready" in result.stdout and "Traceback" not in result.stderr
