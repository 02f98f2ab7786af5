"""The pages: links resolve, options exist, README links every page and has the numbers of the page
that proves them."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

README = ROOT / "README.md"
FOLDERS = [ROOT / name for name in ("docs", "examples", "configs")]
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    *sorted(page for folder in FOLDERS for page in folder.rglob("*.md")),
]


def anchors(page):
    """Of the headings, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.*)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_resolve():
    broken = []
    for page in PAGES:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append((page.name, link))
    assert not broken


def test_options_exist():
    """In the sources of this package and of fairseq: written out, or as fields of a dataclass."""
    fairseq = importlib.util.find_spec("fairseq") or pytest.skip("needs fairseq")
    folders = [ROOT / name for name in ("agg_fairseq", "scripts", "benchmarks", "examples")]
    files = [
        path for folder in (*folders, Path(fairseq.origin).parent) for path in folder.rglob("*.py")
    ]
    files += (ROOT / "scripts").rglob("*.sh")
    text = "\n".join(path.read_text(errors="replace") for path in files)
    known = {
        "--" + field.replace("_", "-")
        for field in re.findall(r"^    ([a-z]\w*): ", text, re.MULTILINE)
    }
    # the last are of pip and twine
    known |= {*re.findall(r"--[a-z][\w-]*", text), "--no-build-isolation", "--strict"}
    for page in PAGES:
        assert {*re.findall(r"(?<![\w-])--[a-z][\w-]*", page.read_text())} <= known, page


def test_readme_links_every_page():
    linked = re.findall(r"\]\((docs/[\w-]+\.md)", README.read_text())
    assert {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")} <= {*linked}


def test_numbers_of_the_readme():
    """Each mean with its deviation stands in the page with the results, too."""
    numbers = re.findall(r"[\d.,]+%? ± [\d.]*\d", README.read_text())
    results = (ROOT / "docs" / "which-cure.md").read_text()
    assert numbers and not [number for number in numbers if number not in results]
