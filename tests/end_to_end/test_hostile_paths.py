"""Scripts and paths that nobody would choose: each is quoted everywhere, and nothing is written beside the folder."""

import shlex
import shutil
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from scripts.command import run
from scripts.data import translation, wikitext
from scripts.experiments import __main__ as experiments
from scripts.training import train as training
from scripts.training.configuration import readable
from tests.conftest import ROOT, run_command
from tests.reproducing import run_entry

pytestmark = pytest.mark.slow  # command lines: processes of their own

NAMES = (
    "a b", " leading", "trailing ", "-o", "--help", "-", "läufe-☃", "*", "?[a]", "$(touch marker)", "`touch marker`",
    ";touch marker", "|touch marker", "&", "#", "~", "%s%n", "{}", "{a,b}", "a,b", "[a]", "a=b", 'a"b', "a\\b", "!!",
    "<a>", "a\tb", "$HOME", "new\nline", "'", "a'b", "a:b", "${a}", "end\n", "x" * 200,
)  # fmt: skip
"""Of folders."""
NASTY = "-o '\"`touch marker`$(touch marker);,[a]{b}=\\*?!é "
"""All at once."""
TEXT = "a b <unk> @-@ c\n = d = \n"
LINES = {f"wiki.{split}.tokens": TEXT for split in ("train", "valid", "test")}
LINES |= {f"{split}.{language}": "ab abba\n" for split in ("train", "valid", "test") for language in ("en", "de")}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """The shell scripts, over a Python that only notes how it is called."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "scripts" / "setup.sh").write_text("exit 0\n")
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    python.chmod(0o755)
    return root


def snapshot(folder, *left_out):
    """All that is in a folder, but some of its folders, and when it was changed."""
    paths = [path for path in Path(folder).rglob("*") if not any(path.is_relative_to(one) for one in left_out)]
    return {path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths if not path.is_dir()}


def data_folder(folder):
    folder.mkdir()
    for name, text in LINES.items():
        (folder / name).write_text(text)


UNFIT = (":", "${", "\n")
"""What fairseq cannot take in a path: it splits data at colons, and hydra replaces what is in braces."""
ENTRIES = {
    "demo": ("--corpus", "wikitext", "--updates", "1", "--vocabulary", "10"),
    "objectives": ("--updates", "1"),
    "f2": ("--updates", "1"),
    "multi30k": ("--updates", "1", "--vocabulary", "8"),
}


@pytest.mark.parametrize("name", [NASTY, "new\nline", "a:b"])
def test_the_demo_trains_in_a_folder_of_any_name_or_refuses_it_in_one_line(name, tmp_path, shared_data):
    """Relative paths, from data to pictures; nothing is written beside the output."""
    place = tmp_path / "place"
    data = place / name
    data.mkdir(parents=True)
    for split, lines in (("train", 300), ("valid", 40), ("test", 40)):
        file = f"wiki.{split}.tokens"
        text = (shared_data / "wikitext-2" / file).read_text(encoding="utf-8").split("\n")[:lines]
        (data / file).write_text("\n".join(text) + "\n", encoding="utf-8")
    before, output = snapshot(place), place / "out" / name
    options = (
        "--data",
        name,
        "--output",
        f"out/{name}",
        "--updates",
        "2",
        "--corpus",
        "wikitext",
        "--vocabulary",
        "300",
    )
    result = run_entry("demo", *options, "--dimension", "8", cwd=place, check=False, timeout=600)
    assert snapshot(place, output) == before and not list(tmp_path.rglob("marker"))
    if any(part in name for part in UNFIT):
        assert result.returncode == 2 and len(result.stderr.splitlines()) == 1, result.stderr
        return
    assert result.returncode == 0, result.stderr
    assert (output / "table.md").is_file() and (output / "projection.png").is_file()
    assert result.stdout.splitlines()[-1] == str(output / "report.html") and (output / "report.html").is_file()


WRAPPERS = (
    "train.sh", "reproduce.sh", "demo.sh", "objectives.sh", "f2_softmax.sh", "multi30k.sh", "wikitext2/prepare.sh",
    "wikitext103/prepare.sh", "wmt14_en_de/prepare.sh",
)  # fmt: skip


@pytest.mark.parametrize("script", WRAPPERS)
def test_wrappers_hand_every_argument_on_as_it_is(repository, script, tmp_path):
    result = run_command("bash", repository / "scripts" / script, *NAMES, cwd=tmp_path)
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
    check_dry("agg-3", ("--scale", "tiny"), places(), lambda output, name: output / f"data-text-{name}")


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_dry_run_of_our_own_says_the_folders_as_they_are_or_refuses_them_in_one_line(entry, places):
    check_dry(entry, ENTRIES[entry], places(), lambda output, name: output)


def check_dry(entry, options, places, data_of):
    """The preparation reads the data and writes into the output folder; each training has its own folder there."""
    for place in places:
        folders = (f"--data={place.name}", f"--output=out/{place.name}")
        status, printed = place.run("reproduce", experiments.main, entry, *options, *folders, "--dry-run")
        assert (status == 2) == is_unfit(place), printed
        output = place.folder / "out" / place.name
        lines = [] if status else printed.splitlines()
        assert status or sum("train.sh" in line for line in lines) >= 2
        assert status or sum("scripts.data" in line for line in lines) == 1
        for line in lines:
            if "train.sh" in line:
                data, save = values(line, "task.data", "checkpoint.save_dir")
                assert Path(data).parent == data_of(output, place.name) and Path(save).parent == output
            elif "scripts.data" in line:  # the other lines say what it takes
                words = shlex.split(line)
                assert words[words.index("--from") + 1] == str(place.folder / place.name)
                assert words[words.index("--output") + 1] == str(data_of(output, place.name))


@pytest.mark.parametrize("option", ["--output", "--data"])
def test_a_reproduction_refuses_what_fairseq_cannot_take_before_it_prepares_anything(
    option, tmp_path, monkeypatch, capsys
):
    place = Place(tmp_path / "place", "a:b", monkeypatch, capsys)
    other = {"--output": "--data=data", "--data": "--output=out"}[option]
    data_folder(place.folder / "data")
    status, said = place.run("reproduce", experiments.main, "agg-3", "--scale", "tiny", f"{option}=a:b", other)
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


@pytest.mark.parametrize("script", WRAPPERS)
def test_scripts_find_themselves_whatever_cdpath_says(repository, script, tmp_path):
    """`cd` prints the folder that it finds by CDPATH, which would be taken for a part of the path."""
    root = shutil.copytree(repository, tmp_path / "repository")
    python = root / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || printf \'%s\' "$1"\n')  # -c: start.sh asks for its version
    result = run_command("bash", f"repository/scripts/{script}", cwd=tmp_path, env={"CDPATH": ".:/"})
    assert result.stdout == str(root / "scripts" / "run.py")
