"""The pages: links resolve, options exist, and numbers are those of docs/results, as docs/README.md
describes."""

import importlib.util
import json
import math
import re
from pathlib import Path

import pytest

from agg_fairseq.columns import METRICS, column_titles
from agg_fairseq.evaluation.group_shares import MEASURED_CHANGES
from agg_fairseq.files import write_json
from agg_fairseq.result import Result, SeedValues
from scripts import results as collect
from tests.conftest import ROOT

README = ROOT / "README.md"
RESULTS = ROOT / "docs" / "results"
PAGES = [README, ROOT / "CONTRIBUTING.md"]
for folder in ("docs", "examples", "configs"):
    PAGES += sorted((ROOT / folder).rglob("*.md"))
TABLE = re.compile(
    r"(?:<!-- ?results: ?(\S+?) ?-->\n+)?^(\|.*\n\|[ :|-]+\n(?:\|.*\n)+)", re.MULTILINE
)
NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def strip_code(page):
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page):
    """The anchors of a page's headings on GitHub."""
    headings = re.findall(r"^#+ (.*)", strip_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_resolve():
    broken = []
    for page in PAGES:
        text = re.sub(r"`[^`\n]*`", "", strip_code(page))
        for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append((page.name, link))
    assert not broken


def test_options_exist():
    """In the sources of this package and of fairseq, written out or as fields of a dataclass."""
    fairseq = importlib.util.find_spec("fairseq") or pytest.skip("needs fairseq")
    files = [*(ROOT / "scripts").rglob("*.sh"), *Path(fairseq.origin).parent.rglob("*.py")]
    for name in ("agg_fairseq", "scripts", "benchmarks", "examples"):
        files += (ROOT / name).rglob("*.py")
    text = "\n".join(path.read_text(errors="replace") for path in files)
    known = {"--no-build-isolation", "--strict"}  # of pip and twine
    known |= {"--nodes", "--ntasks-per-node", "--gpus-per-node", "--wrap"}  # of Slurm
    known |= {*re.findall(r"--[a-z][\w-]*", text)}
    for field in re.findall(r"^    ([a-z]\w*): ", text, re.MULTILINE):
        known.add("--" + field.replace("_", "-"))
    for page in PAGES:
        page_text = re.sub(r"<!--.*?-->", "", page.read_text())
        assert {*re.findall(r"(?<![\w-])--[a-z][\w-]*", page_text)} <= known, page


def test_readme_is_short_and_the_list_of_pages_is_whole():
    assert len(README.read_text().split()) <= 750
    linked = {*re.findall(r"\]\(([\w-]+\.md)", (ROOT / "docs" / "README.md").read_text())}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= linked


def plain(text):
    """A text in one line, without links, emphasis and quotes."""
    return " ".join(re.sub(r"[*`†]|\[([^]]*)\]\([^)]*\)", r"\1", text).split())


def cells(line):
    return [*map(plain, re.split(r"(?<!\\)\|", line.strip().strip("|")))]


def read_results(file):
    """The labels but that of the seed; and the rows, by title the list of numbers that a cell shows.

    Columns are titles, or keys by measure, as commands write to --json. Several seeds are averaged;
    `mean` and `deviation` stand for seeds whose numbers were not kept.
    """
    content, found = json.loads((RESULTS / file).read_text(encoding="utf-8")), {}
    columns = content["columns"]
    for row in content["rows"]:
        *name, seed = row["name"]
        if isinstance(columns, list):
            values = {title: row[title] for title in columns if title in row}
        else:
            values, result = {}, Result.read(RESULTS / file)
            for measure, key in column_titles(columns):
                title = METRICS[measure].title.format(key).strip()
                values[title] = result.shown((*name, seed), measure, key)
        matching = found.setdefault(tuple(name), {})
        for title, value in values.items():
            matching.setdefault(title, {})[seed] = value
    for matching in found.values():
        for title, values in matching.items():
            matching[title] = shown(values)
    return content["labels"][:-1], found


def shown(values):
    """What a cell shows of the values by seed: any number of numbers, or mean and deviation."""
    if isinstance(values.get("mean"), list):
        return values["mean"]
    if {*values} <= {"mean", "deviation"}:
        found = values.get("mean"), values.get("deviation")
        return [number for number in found if number is not None]
    seeds = SeedValues(values)
    if not seeds.numbers:
        return []
    return [seeds.mean, seeds.deviation] if seeds.deviation else [seeds.mean]


def is_shown(number, value):
    """Whether a number of a page is this value, rounded to its digits."""
    found = float(number.replace(",", "").replace("−", "-"))
    if "e" in number:
        return math.isclose(found, value, rel_tol=0.05)
    return abs(found - value) <= 0.5000001 * 10 ** -len(number.partition(".")[2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_have_the_numbers_of_their_files(page):
    """A file may have more rows and columns."""
    for file, table in TABLE.findall(page.read_text()):
        header, rule, *lines = table.splitlines()
        if not file:
            assert "-:" not in rule, f"a table of numbers without a file of results: {header}"
            continue
        labels, results = read_results(file)
        split, titles, names = len(labels), cells(header), set()
        assert titles[:split] == labels
        for line in lines:
            texts = cells(line)
            name = tuple(texts[:split])
            names.add(name)
            for title, text in zip(titles[split:], texts[split:], strict=True):
                values = results[name].get(title, results[name].get(f"{title} total", []))
                numbers = NUMBER.findall(text)
                same = len(numbers) == len(values) and all(map(is_shown, numbers, values))
                assert same, f"{file}: {name}, {title}: {text} instead of {values}"
        assert len(names) == len(lines)


def facts(file):
    return json.loads((RESULTS / file).read_text(encoding="utf-8"))["facts"]


def gains():
    """s of each training with 0.999, and the measured change of the perplexity, both in percent."""
    for file, title in (("rule", "three seeds"), ("rule-chosen", "measured"), ("w-alone", "all")):
        for row in read_results(f"{file}.json")[1].values():
            if title in row:
                yield row["s"][0], row[title][0]
    for file in ("which-cure.json", "large-vocabulary.json"):
        claim = facts(file)["claims"]["0.999 for 0.98"]
        yield claim["s"], claim["PPL total"][0]
    for file, new, old in (
        ("larger.json", "β₂ = 0.999", "likelihood, β₂ = 0.98"),
        ("demo.json", "mle-beta2-0.999", "mle"),
    ):
        rows = read_results(file)[1]
        new_value, old_value = (rows[name,]["PPL total"][0] for name in (new, old))
        yield facts(file)["predicted"]["s"], 100 * (new_value / old_value - 1)


def readme():
    for low, high in ((0, 1), *MEASURED_CHANGES):
        falls = sorted(round(-change, 1) for s, change in gains() if low <= s < high)
        if low:
            assert MEASURED_CHANGES[low, high] == (-falls[0], -falls[-1])
            yield f"{low}% to {high}% | {falls[0]}% to {falls[-1]}% lower"
        else:
            assert len(falls) == 1
            yield f"below 1% | nearly the same (one training: {falls[0]}% lower"


def test_sentences_of_the_readme_have_the_numbers_of_the_files():
    """Those of other pages point to tables."""
    whole = plain(README.read_text())
    assert not [sentence for sentence in readme() if sentence not in whole]
    text = plain(re.sub(r"<!--results.*?\n\n.*?\n\n", "", strip_code(README), flags=re.DOTALL))
    for sentence in readme():
        text = text.replace(sentence, "")
    assert {*re.findall(r"[\d.]+%|± [\d.]+", text)} <= {"1%"}  # of old text; s above


def test_every_file_of_results_is_shown_and_says_where_it_is_from():
    text = "\n".join(page.read_text() for page in PAGES)
    named = {file for file, _ in TABLE.findall(text) if file}
    named |= {*re.findall(r"results/([\w-]+\.json)\)", text)}
    assert {path.name for path in RESULTS.glob("*.json")} == named
    for file in named:
        assert {"command", "commit", "machine", "versions"} <= facts(file).keys(), file


def test_results_of_runs_are_collected(tmp_path, monkeypatch):
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "t.tsv").write_text("# A table\n\teval/PPL total\teval/BLEU\nmle\nagg\n")
    columns = {"perplexity": ["total", "rare"], "bleu": [""]}
    for seed, total in (("a", 10.0), ("b", 13.0)):
        row = {"perplexity": {"total": total, "rare": 1.0}, "bleu": 7.0}
        path = tmp_path / seed / "mle" / "eval.json"
        path.parent.mkdir(parents=True)
        write_json(path, Result({"mle": row}, columns, {}).json())
    monkeypatch.setattr(collect, "ROOT", tmp_path)
    runs = [str(tmp_path / seed) for seed in "ab"]
    collect.main(["NAME", str(tmp_path / "t.tsv"), *runs, "--command", "make demo"])
    collected = tmp_path / "docs" / "results" / "NAME.json"
    assert Result.read(collected).value(("mle", "2"), "bleu") == 7
    _, rows = read_results(collected)
    assert rows == {("mle",): {"PPL total": pytest.approx([11.5, 4.5**0.5]), "BLEU": [7]}}
