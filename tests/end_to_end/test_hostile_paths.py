"""Scripts and paths that nobody would choose: each is quoted everywhere, and nothing is written beside the folder."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from scripts.command import run
from scripts.data import translation, wikitext
from scripts.reproduction import __main__ as reproduction
from scripts.training import train as training
from scripts.training.configuration import readable
from tests.conftest import ROOT, run_command

NAMES = (
    "a b", " leading", "trailing ", "-o", "--help", "-", "läufe-☃", "*", "?[a]", "$(touch marker)", "`touch marker`",
    ";touch marker", "|touch marker", "&", "#", "~", "%s%n", "{}", "{a,b}", "a,b", "[a]", "a=b", 'a"b', "a\\b", "!!",
    "<a>", "a\tb", "$HOME", "new\nline", "'", "a'b", "a:b", "${a}", "end\n", "x" * 200,
)  # fmt: skip
"""Of folders."""
NASTY = "-o '\"`touch marker`$(touch marker);,[a]{b}=\\*?!é "
"""All at once."""
STUB = """#!/usr/bin/env bash
# Stands for a program of the environment: notes its arguments, and leaves behind what the scripts go on from.
set -euo pipefail
{ printf '%s\\0' "${0##*/}" "$@"; printf '\\n\\0'; } >> "$CALLS"
while [ $# -gt 0 ]; do
  case $1 in
    --save-dir) save=$2 ;;
    --log-file) log=$2 ;;
    --destdir) mkdir -p -- "$2" ;;
    --output | --json) case ${0##*/} in agg-fairseq) echo '{}' > "$2" ;; esac ;;
    user-dir) echo /user-dir ;;
  esac
  shift
done
case ${0##*/} in sacrebleu) echo '{"score": 1, "signature": "s"}' ;; esac
if [ -n "${save:-}" ]; then mkdir -p -- "$save"; touch -- "$save/checkpoint_best.pt"; echo rare_tokens > "$log"; fi
"""
LINES = {"wiki.train.tokens": "a b c\n", "wiki.valid.tokens": "a\n", "wiki.test.tokens": "b\n"}
LINES |= {f"{split}.{language}": "ab abba\n" for split in ("train", "valid", "test") for language in ("en", "de")}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """The scripts, over programs that only note how they are called."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "scripts" / "setup.sh").write_text("exit 0\n")
    programs = root / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("agg-fairseq", "fairseq-train", "fairseq-preprocess", "fairseq-generate", "sacrebleu"):
        (programs / name).write_text(STUB)
        (programs / name).chmod(0o755)
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    return root


def snapshot(folder, *left_out):
    """All that is in a folder, but some of its folders, and when it was changed."""
    paths = [path for path in Path(folder).rglob("*") if not any(path.is_relative_to(one) for one in left_out)]
    return {path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths if not path.is_dir()}


def data_folder(folder):
    folder.mkdir()
    for name, text in LINES.items():
        (folder / name).write_text(text)


def run_script(repository, script, place, name, *options):
    """A script from the folder `place`, with data in, and output to, folders of this name, as relative paths."""
    data, output = place / name, place / "out" / name
    data_folder(data)
    output.parent.mkdir()
    calls = place.parent / f"calls-of-{place.name}"
    calls.touch()
    command = ["bash", repository / "scripts" / script, "--data", name, "--output", f"out/{name}", *options]
    before = snapshot(place.parent, output), snapshot(repository)
    result = subprocess.run(
        list(map(str, command)), cwd=place, env={**os.environ, "CALLS": str(calls)}, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    after = snapshot(place.parent, output, calls), snapshot(repository)
    before[0].pop(calls)
    assert after == before, "something was written beside the output"
    assert not list(place.parent.rglob("marker")), "a name was run"
    return result, output, [call.split("\0")[:-1] for call in calls.read_text().split("\n\0")[:-1]]


SCRIPTS = {
    "demo.sh": ("--corpus", "wikitext", "--updates", "1", "--vocabulary", "10"),
    "objectives.sh": ("--updates", "1"),
    "f2_softmax.sh": ("--updates", "1"),
    "multi30k.sh": ("--updates", "1", "--vocabulary", "8"),
}
UNFIT = (":", "${", "\n")
"""What fairseq cannot take in a path: it splits data at colons, and hydra replaces what is in braces."""


def check(repository, script, name, place):
    result, output, calls = run_script(repository, script, place, name, *SCRIPTS[script])
    if any(part in name for part in UNFIT):
        assert result.returncode == 2 and len(result.stderr.splitlines()) == 1, result.stderr
        return
    assert result.returncode == 0, result.stderr
    trainings = [call for call in calls if call[0] == "fairseq-train"]
    assert trainings and all(call[1] == str(output / "data-bin") for call in trainings)
    assert all(Path(call[call.index("--save-dir") + 1]).parent == output for call in trainings)


def check_all(repository, script, names, folder):
    for number, name in enumerate(names):
        place = folder / f"place {number}"
        place.mkdir()
        check(repository, script, name, place)


def test_the_demo_takes_any_path_or_refuses_it_in_one_line(repository, tmp_path):
    check_all(repository, "demo.sh", NAMES, tmp_path)


def test_the_translation_takes_a_path_of_all_that_a_shell_reads_or_refuses_it_in_one_line(repository, tmp_path):
    check_all(repository, "multi30k.sh", (NASTY, "end\n", "a:b"), tmp_path)


def test_a_step_that_fails_is_named(repository, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    result, output, _ = run_script(repository, "multi30k.sh", place, "data", "--vocabulary", "8000")
    last = result.stderr.splitlines()[-1]
    assert last == f"multi30k: error: subwords failed; its output is in {output / 'subwords.log'}"
    assert result.returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("script", ["objectives.sh", "f2_softmax.sh", "multi30k.sh"])
def test_the_other_scripts_take_any_path_or_refuse_it_in_one_line(repository, script, tmp_path):
    check_all(repository, script, NAMES, tmp_path)


@pytest.mark.parametrize("script", ["f2_softmax.sh", "multi30k.sh"])
def test_an_output_without_a_name_is_not_where_the_user_is(repository, script, tmp_path):
    data_folder(tmp_path / "data")
    (tmp_path / "text").mkdir()
    options = ("--data", "data", *SCRIPTS[script], "--output", "")
    result = run_command("bash", repository / "scripts" / script, *options, cwd=tmp_path, check=False)
    assert result.returncode == 2 and "--output: found ''" in result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"data", "text"}


WRAPPERS = ("train.sh", "reproduce.sh", "wikitext2/prepare.sh", "wikitext103/prepare.sh", "wmt14_en_de/prepare.sh")


@pytest.mark.parametrize("script", WRAPPERS)
def test_wrappers_hand_every_argument_on_as_it_is(repository, script, tmp_path):
    root = shutil.copytree(repository, tmp_path / "repository")
    python = root / ".venv" / "bin" / "python"
    python.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    result = run_command("bash", root / "scripts" / script, *NAMES, cwd=tmp_path)
    assert result.stdout.split("\0")[-1 - len(NAMES) : -1] == list(NAMES)
    assert not list(tmp_path.rglob("marker"))


class Place:
    """A folder in which a program is run, in this process, with data in a folder of some name."""

    def __init__(self, folder, name, monkeypatch, capsys):
        self.folder, self.name, self.capsys, self.monkeypatch = folder, name, capsys, monkeypatch
        folder.mkdir()
        data_folder(folder / name)
        monkeypatch.chdir(folder)

    def run(self, program, main, *arguments):
        """Its status and what it said; nothing is written, and what is refused is refused in one line."""
        before = snapshot(self.folder)
        self.monkeypatch.setattr(sys, "argv", [program, *arguments])
        status = run(program, main)
        printed = self.capsys.readouterr()
        assert snapshot(self.folder) == before, "a dry run wrote something"
        errors = [line for line in printed.err.splitlines() if ": error: " in line]
        assert (status, len(errors)) in ((0, 0), (2, 1)), printed.err
        assert status == 0 or not printed.out
        return status, printed.out or printed.err


@pytest.fixture
def places(tmp_path, monkeypatch, capsys):
    """A place for each name."""
    return lambda: (Place(tmp_path / f"place {i}", name, monkeypatch, capsys) for i, name in enumerate(NAMES))


def values(command, *keys):
    """What hydra makes of overrides in a printed command."""
    overrides = dict(word.partition("=")[::2] for word in shlex.split(command) if "=" in word)
    overrides = {key.lstrip("+"): f"{key}={value}" for key, value in overrides.items()}
    return [OverridesParser.create().parse_override(readable(overrides[key])).value() for key in keys]


def is_unfit(place):
    return any(part in place.name for part in UNFIT)


def test_a_dry_training_says_the_folders_as_they_are_or_refuses_them_in_one_line(places):
    for place in places():
        folders = [str(place.folder / place.name / "data-bin"), str(place.folder / place.name / "model")]
        Path(folders[0]).mkdir()
        settings = (f"task.data={folders[0]}", f"checkpoint.save_dir={folders[1]}")
        config = str(ROOT / "configs" / "wikitext103" / "agg-mle")
        status, printed = place.run("train", training.main, config, "size=tiny", *settings, "--dry-run")
        assert status == 0 or is_unfit(place), printed
        assert status or values(printed, "task.data", "checkpoint.save_dir") == folders


def test_a_dry_reproduction_says_the_folders_as_they_are_or_refuses_them_in_one_line(places):
    for place in places():
        options = ("--dry-run", "--scale", "tiny", f"--data={place.name}", f"--output=out/{place.name}")
        status, printed = place.run("reproduce", reproduction.main, "agg-3", *options)
        assert (status == 2) == is_unfit(place), printed
        output = place.folder / "out" / place.name
        for line in () if status else printed.splitlines():
            if "train.sh" in line:
                data, save = values(line, "task.data", "checkpoint.save_dir")
                assert Path(data).parent == output / f"data-text-{place.name}" and Path(save).parent == output
            else:
                words = shlex.split(line)
                assert words[words.index("--from") + 1] == str(place.folder / place.name)


@pytest.mark.parametrize("option", ["--output", "--data"])
def test_a_reproduction_refuses_what_fairseq_cannot_take_before_it_prepares_anything(
    option, tmp_path, monkeypatch, capsys
):
    place = Place(tmp_path / "place", "a:b", monkeypatch, capsys)
    other = {"--output": "--data=data", "--data": "--output=out"}[option]
    data_folder(place.folder / "data")
    status, said = place.run("reproduce", reproduction.main, "agg-3", "--scale", "tiny", f"{option}=a:b", other)
    assert status == 2 and said.startswith(f"reproduce: error: found the folder '{place.folder}") and "a:b'" in said


@pytest.mark.parametrize("corpus", ["wikitext2", "wikitext103", "wmt14_en_de"])
def test_a_dry_preparation_says_the_folder_as_it_is_or_refuses_it_in_one_line(corpus, places):
    main, of_corpus = (
        (translation.main, ()) if corpus == "wmt14_en_de" else (wikitext.main, (corpus, "--tokenizer", "words"))
    )
    for place in places():
        options = ("--dry-run", f"--from={place.name}", f"--output=out/{place.name}")
        status, printed = place.run("prepare", main, *of_corpus, *options)
        assert status == 0 and f"out/{place.name}" in printed


@pytest.mark.parametrize("script", ["objectives.sh", "f2_softmax.sh"])
def test_scripts_over_the_demo_find_it_whatever_cdpath_says(repository, script, tmp_path):
    root = shutil.copytree(repository, tmp_path / "repository")
    (root / "scripts" / "demo.sh").write_text("printf '%s' \"$0\"\nexit 3\n")
    command = ("bash", f"repository/scripts/{script}", "--data", "data")
    result = run_command(*command, cwd=tmp_path, env={"CDPATH": ".:/"}, check=False)
    assert (result.returncode, result.stdout) == (3, str(root / "scripts" / "demo.sh"))


@pytest.mark.parametrize("script", WRAPPERS)
def test_scripts_find_themselves_whatever_cdpath_says(repository, script, tmp_path):
    """`cd` prints the folder that it finds by CDPATH, which would be taken for a part of the path."""
    root = shutil.copytree(repository, tmp_path / "repository")
    python = root / ".venv" / "bin" / "python"
    python.write_text("#!/bin/sh\nprintf '%s' \"$1\"\n")
    result = run_command("bash", f"repository/scripts/{script}", cwd=tmp_path, env={"CDPATH": ".:/"})
    assert result.stdout == str(root / "scripts" / "run.py")


def test_data_named_like_the_last_folder_are_the_folder_of_that_name(repository, tmp_path):
    """`cd -- -` would go to where the shell was before."""
    place = tmp_path / "place"
    place.mkdir()
    result, output, _ = run_script(repository, "demo.sh", place, "-", *SCRIPTS["demo.sh"])
    assert result.returncode == 0 and f"data={place / '-'} " in (output / "settings").read_text()
