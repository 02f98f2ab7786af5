"""Scripts and paths that nobody would choose: each is quoted everywhere, and nothing is written beside the folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, run_command

NAMES = (
    "a b", " leading", "trailing ", "-o", "--help", "-", "läufe-☃", "*", "?[a]", "$(touch marker)", "`touch marker`",
    ";touch marker", "|touch marker", "&", "#", "~", "%s%n", "{}", "{a,b}", "a,b", "[a]", "a=b", 'a"b', "a\\b", "!!",
    "<a>", "a\tb", "$HOME", "new\nline", "'", "a'b", "a:b", "${a}", "x" * 200,
)  # fmt: skip
"""Of folders."""
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
if [ -n "${save:-}" ]; then mkdir -p -- "$save"; touch -- "$save/checkpoint_best.pt"; echo rare_tokens > "$log"; fi
"""
LINES = {"wiki.train.tokens": "a b c\n", "wiki.valid.tokens": "a\n", "wiki.test.tokens": "b\n"}
LINES |= {f"{split}.{language}": "a b\n" for split in ("train", "valid", "test") for language in ("en", "de")}


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


@pytest.mark.slow
@pytest.mark.parametrize("script", ["objectives.sh", "f2_softmax.sh"])
def test_scripts_over_the_demo_take_any_path_or_refuse_it_in_one_line(repository, script, tmp_path):
    check_all(repository, script, NAMES, tmp_path)


@pytest.mark.parametrize(
    "script",
    ["train.sh", "reproduce.sh", "wikitext2/prepare.sh", "wikitext103/prepare.sh", "wmt14_en_de/prepare.sh"],
)
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
