"""The commands of all tables exist; end_to_end/test_tables.py runs them."""

import os
import shlex

import pytest

from agg_fairseq.cli.main import build_parser
from tests.conftest import ROOT, run_command
from tests.reproducing import SCRIPTS

PROGRAMS_OF_OTHERS = "awk cat echo fairseq-generate fairseq-preprocess grep shuf wc".split()


@pytest.mark.grid(1)
@pytest.mark.parametrize("size", ["paper", "small", "tiny"])
def test_every_command_of_the_tables_can_be_run(size, tmp_path):
    """As DRY_RUN=1 prints it: there is such a program, with these options, and its files of the
    repository."""
    (tmp_path / "data").mkdir()
    variables = {"DRY_RUN": "plan", "SIZE": size, "DATA": str(tmp_path / "data"), "RUNS": "runs"}
    for script in SCRIPTS:
        printed = run_command("bash", ROOT / "scripts" / script, cwd=tmp_path, env=variables)
        assert printed.stderr == "", script
        first, *commands = printed.stdout.splitlines()
        assert first.startswith("export PATH=") and commands
        for command in commands:
            program, *words = shlex.split(command)
            words = words[: words.index(">")] if ">" in words else words
            if program == "agg-fairseq":
                build_parser(words).parse_args(words)
            else:
                assert program in ("bash", "python", *PROGRAMS_OF_OTHERS), command
            if words[0] == "-m":
                words[0] = f"{ROOT}/{words[1].replace('.', '/')}.py"
            assert program not in ("bash", "python") or words[0].startswith(f"{ROOT}/"), command
            for path in (word for word in words if word.startswith(f"{ROOT}/")):
                assert os.path.exists(path), command
