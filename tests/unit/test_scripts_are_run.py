"""Each file of scripts/ is run by a test. Those of tables are recorded as they run, by
end_to_end/test_tables.py; the others are named here, with the test that runs them."""

import ast
import os
import runpy
import shlex
import subprocess
import sys

import pytest

from agg_fairseq.cli.main import build_parser
from tests.conftest import ROOT
from tests.reproducing import PROGRAMS, SCRIPTS

SOURCED = {
    "env.sh",
    "in_venv.sh",
    "data/language_model.sh",
    "data/preparation.sh",
    "data/wikitext.sh",
}
RUN_BY = {
    "end_to_end/test_reproduce.py: test_the_index_lists_the_scripts_also_where_nobody_reads_on": "reproduce.sh",
    "end_to_end/test_setup.py: test_a_second_run_installs_nothing": "setup.sh",
    "end_to_end/test_train.py: test_a_training_is_interrupted_and_resumed": "train.sh",
    "end_to_end/test_train.py: test_configurations_and_options_that_are_refused": "command.py",
    "end_to_end/test_translation.py: test_archives_of_wmt": "wmt14_en_de/prepare.sh data/plain_text.py data/encode.py",
    "end_to_end/test_wikitext.py: test_a_text_and_another_one_in_its_tokens": "data/learn_sentencepiece.py",
    "end_to_end/test_wikitext.py: test_every_form_gives_the_same_text": "wikitext2/prepare.sh",
    "end_to_end/test_wikitext.py: test_ids_of_gpt2": "wikitext103/prepare.sh",
    "end_to_end/test_wikitext.py: test_the_documentation_of_python": "text/prepare.sh data/python_documentation.py",
    "unit/test_pages.py: test_results_of_runs_are_collected": "results.py",
}  # fmt: skip


def test_every_script_is_run_by_a_test():
    named = {file for files in RUN_BY.values() for file in files.split()}
    scripts = ROOT / "scripts"
    paths = [path for kind in ("sh", "py") for path in scripts.rglob(f"*.{kind}")]
    assert {str(path.relative_to(scripts)) for path in paths} == named | SOURCED | {
        *SCRIPTS,
        *PROGRAMS,
    }
    sources = "\n".join(path.read_text() for path in paths if path.suffix == ".sh")
    assert all(f'/{file}"' in sources for file in SOURCED)
    for test in RUN_BY:
        module, _, name = test.partition(": ")
        text = (ROOT / "tests" / module).read_text()
        assert name in {getattr(statement, "name", "") for statement in ast.parse(text).body}, test


PROGRAMS_OF_OTHERS = "awk cat echo fairseq-generate fairseq-preprocess grep shuf wc".split()


@pytest.mark.parametrize("size", ["paper", "small", "tiny"])
def test_every_command_of_the_tables_can_be_run(size, tmp_path):
    """As DRY_RUN=1 prints it: there is such a program, with these options, and its files of the
    repository."""
    (tmp_path / "data").mkdir()
    variables = {"DRY_RUN": "plan", "SIZE": size, "DATA": str(tmp_path / "data"), "RUNS": "runs"}
    for script in SCRIPTS:
        printed = subprocess.run(
            ["bash", ROOT / "scripts" / script], cwd=tmp_path, env={**os.environ, **variables},
            capture_output=True, text=True,
        )  # fmt: skip
        assert (printed.returncode, printed.stderr) == (0, ""), script
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


def test_the_picture_of_a_page_is_drawn(tmp_path, monkeypatch):
    """Of what is in docs/results, by the command that no script calls."""
    pytest.importorskip("matplotlib")
    script = ROOT / "scripts" / "ours" / "fine_tuning.py"
    results, picture = ROOT / "docs" / "results" / "fine-tuning-curves.json", tmp_path / "p.png"
    monkeypatch.setattr(sys, "argv", [str(script), "picture", str(results), str(picture)])
    runpy.run_path(str(script), run_name="__main__")
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
