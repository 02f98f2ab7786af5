"""Folders of names that nobody would choose: each is quoted everywhere, and nothing is written beside the folder."""

import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from scripts.training.configuration import readable
from tests.reproducing import LM, head_of, reproduce

pytestmark = pytest.mark.slow

NAMES = (
    "a b", " leading", "trailing ", "-o", "--help", "läufe-☃", "?[a]*", "$(touch marker)`touch marker`", ";|&#~%s%n",
    "{a,b}", "a=b", 'a"b\\c', "!!<a>\t", "$HOME", "a'b", "new\nline", "a:b", "${a}", "x" * 200,
)  # fmt: skip
NASTY = "-o '\"`touch marker`$(touch marker);,[a]{b}=\\*?!é "
"""All at once."""
UNFIT = (":", "${", "\n")
"""What fairseq cannot take in a path: it splits data at colons, and hydra replaces what is in braces."""
TEXT = [f"wiki.{split}.tokens" for split in ("train", "valid", "test")]


def values(command, *keys):
    """What hydra makes of overrides in a printed command."""
    overrides = dict(word.partition("=")[::2] for word in shlex.split(command) if "=" in word)
    overrides = {key.lstrip("+"): f"{key}={value}" for key, value in overrides.items()}
    return [OverridesParser.create().parse_override(readable(overrides[key])).value() for key in keys]


@pytest.mark.parametrize(("entry", "options"), [("agg-10", ("--scale", "tiny")), ("demo", ())])
def test_a_dry_reproduction_says_the_folders_as_they_are_or_refuses_them_in_one_line(entry, options, tmp_path):
    """The preparation reads the data and writes into the output folder; each training has its own folder there."""
    for name in NAMES:
        (tmp_path / name).mkdir()
        for file in TEXT:
            (tmp_path / name / file).write_text("a\n")
        folders = (f"--data={name}", f"--output=out/{name}")
        result = reproduce(entry, *options, *folders, "--dry-run", cwd=tmp_path, check=False)
        is_unfit = any(part in name for part in UNFIT)
        assert (result.returncode == 2) == is_unfit and not (tmp_path / "out").exists(), result.stderr
        output = tmp_path / "out" / name
        prepared = output if entry == "demo" else output / f"data-text-{name}"
        lines = [line for line in result.stdout.splitlines() if not line.startswith("#")]
        if is_unfit:
            assert not lines and result.stderr.count("\n") == 1
            continue
        preparation, *trainings = lines
        words = shlex.split(preparation)
        assert words[words.index("--from") + 1] == str(tmp_path / name)
        assert words[words.index("--output") + 1] == str(prepared)
        assert len(trainings) >= 2
        for line in trainings:
            data, save = values(line, "task.data", "checkpoint.save_dir")
            assert Path(data).parent == prepared and Path(save).parent == output


def test_the_demo_trains_in_a_folder_of_any_name(tmp_path, shared_data):
    """Relative paths, from data to pictures; nothing is written beside the output."""
    place = tmp_path / "place"
    place.mkdir()
    head_of(shared_data / "wikitext-2", place / NASTY, TEXT, {"train": 300, "valid": 40, "test": 40})
    options = (f"--data={NASTY}", f"--output=out/{NASTY}", "--jobs", "1", "--updates", "2", "--vocabulary", "300")
    printed = reproduce("demo", *options, *(one for one in LM if one.startswith("model.")), cwd=place)
    output = place / "out" / NASTY
    assert {str(path.relative_to(place)) for path in place.rglob("*") if output not in path.parents} == {
        NASTY, "out", f"out/{NASTY}", *(f"{NASTY}/{name}" for name in TEXT),
    }  # fmt: skip
    assert (output / "table.md").is_file() and (output / "projection.png").is_file()
    assert printed.stdout.splitlines()[-1] == str(output / "report.html") and (output / "report.html").is_file()
