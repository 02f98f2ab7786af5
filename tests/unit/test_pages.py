"""The pages: links resolve, options exist, and numbers are those of docs/results.

A table of measured numbers follows a comment `<!--results:NAME.json-->`. The file has each number of the table by row
and column, as docs/README.md describes.
"""

import functools
import importlib.util
import json
import math
import re
from pathlib import Path

import pytest

from agg_fairseq.columns import METRICS
from agg_fairseq.result import Result, SeedValues
from scripts import results as collect
from tests.conftest import ROOT

README = ROOT / "README.md"
RESULTS = ROOT / "docs" / "results"
FOLDERS = [ROOT / name for name in ("docs", "examples", "configs")]
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    *sorted(page for folder in FOLDERS for page in folder.rglob("*.md")),
]
TABLE = re.compile(
    r"(?:<!-- ?results: ?(\S+?) ?-->\n+)?^(\|.*\n\|[ :|-]+\n(?:\|.*\n)+)", re.MULTILINE
)
NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def without_code(page):
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page):
    """The anchors of a page's headings on GitHub."""
    headings = re.findall(r"^#+ (.*)", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_resolve():
    broken = []
    for page in PAGES:
        text = re.sub(r"`[^`\n]*`", "", without_code(page))
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
    fields = re.findall(r"^    ([a-z]\w*): ", text, re.MULTILINE)
    known = {"--" + field.replace("_", "-") for field in fields}
    known |= {*re.findall(r"--[a-z][\w-]*", text)}
    known |= {"--no-build-isolation", "--strict"}  # of pip and twine
    for page in PAGES:
        page_text = re.sub(r"<!--.*?-->", "", page.read_text())
        assert {*re.findall(r"(?<![\w-])--[a-z][\w-]*", page_text)} <= known, page


def test_readme_is_short_and_links_every_page():
    assert len(README.read_text().split()) <= 1100
    linked = re.findall(r"\]\((docs/[\w-]+\.md)", README.read_text())
    assert {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")} <= {*linked}


def cells(line):
    texts = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [" ".join(re.sub(r"[*`†]|\[(.*?)\]\(.*?\)", r"\1", text).split()) for text in texts]


def read_results(path):
    """The labels but that of the seed; and the rows, by column the list of numbers that a cell shows.

    Several seeds are averaged; `mean` and `deviation` stand for seeds whose numbers were not kept.
    """
    result = json.loads(path.read_text(encoding="utf-8"))
    rows = {}
    for row in result["rows"]:
        *name, seed = row["name"]
        for title, value in values_of_row(row, result["columns"]).items():
            rows.setdefault(tuple(name), {}).setdefault(title, {})[seed] = value
    for row in rows.values():
        for title, values in row.items():
            row[title] = shown(values)
    return result["labels"][:-1], rows


def values_of_row(row, columns):
    """The values by title. `columns` are titles, or keys by measure, as commands write to --json."""
    if isinstance(columns, list):
        return {title: row.get(title) for title in columns}
    values = {}
    for measure, keys in columns.items():
        for key in keys:
            value = row.get(measure)
            if isinstance(value, dict):
                value = value.get(key)
            title = METRICS[measure].title.format(key).strip()
            values[title] = value if value is None else value * METRICS[measure].scale
    return values


def shown(values):
    """What a cell shows of the values by seed: any number of numbers, or mean and deviation."""
    if {*values} <= {"mean", "deviation"}:
        mean = values.get("mean")
        if isinstance(mean, list):
            return mean
        return [number for number in (mean, values.get("deviation")) if number is not None]
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


def errors_of_table(file, lines):
    """The differences of a table from its file, which may have more rows and columns."""
    labels, results = read_results(RESULTS / file)
    header, _, *rows = map(cells, lines)
    split = len(labels)
    wrong = [] if header[:split] == labels else [f"{header[:split]} instead of {labels}"]
    names = [tuple(row[:split]) for row in rows]
    if len({*names}) < len(names) or not {*names} <= results.keys():
        return [*wrong, f"rows {names} instead of some of {[*results]}"]
    for name, row in zip(names, rows, strict=True):
        for title, text in zip(header[split:], row[split:], strict=True):
            values = results[name].get(title, results[name].get(f"{title} total"))
            numbers = NUMBER.findall(text)
            same = values is not None and len(numbers) == len(values)
            if not same or not all(map(is_shown, numbers, values)):
                wrong.append(f"{name}, {title}: {text} instead of {values}")
    return wrong


def errors_of_page(text):
    """The differences of the tables of a page from their files."""
    wrong = []
    for file, table in TABLE.findall(text):
        lines = table.splitlines()
        if file:
            wrong += [f"{file}: {error}" for error in errors_of_table(file, lines)]
        elif "-:" in lines[1]:
            wrong.append(f"a table of numbers without a file of results: {lines[0]}")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_have_the_numbers_of_their_files(page):
    assert not errors_of_page(page.read_text())


WORDS = "no one two three four five six seven eight nine ten eleven".split()
CLAIMS = {}
"""By page, a function that yields its phrases with numbers from docs/results."""


def claims_of(page):
    return functools.partial(CLAIMS.setdefault, page)


def results(file):
    """The numbers of a file of results, by row (a tuple, if there are several labels) and column."""
    labels, rows = read_results(RESULTS / f"{file}.json")
    return rows if len(labels) > 1 else {name: row for (name,), row in rows.items()}


def facts(file):
    return json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))["facts"]


def percent(new, old):
    return 100 * (new[0] / old[0] - 1)


def signed(change):
    """A change in percent, or a cell of changes, with its sign and, where it has one, its deviation."""
    mean, *deviation = change if isinstance(change, list) else [change]
    return " ± ".join([f"{mean:+.1f}%".replace("-", "−"), *map("{:.1f}".format, deviation)])


def size(change):
    return f"{abs(change[0])}% ± {change[1]}"


def span(values, digits=1, unit=""):
    """The least and the largest of some numbers."""
    least, most = (f"{value:.{digits}f}{unit}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def is_hit(predicted, measured):
    """As commit f845a97 defined it, before the trainings."""
    near = abs(predicted - measured) <= 2 or 0.5 <= measured / predicted <= 2
    return predicted * measured > 0 and near


def gains():
    """s of each training with 0.999, and the measured change of the perplexity, both in percent."""
    for file, title in (("rule", "three seeds"), ("rule-chosen", "measured")):
        for row in results(file).values():
            yield row["s"][0], row[title][0]
    for file in ("which-cure", "large-vocabulary"):
        claim = facts(file)["claims"]["0.999 for 0.98"]
        yield claim["s"], claim["PPL total"][0]
    for file, new, old in (
        ("larger", "β₂ = 0.999", "likelihood, β₂ = 0.98"),
        ("demo", "mle-beta2-0.999", "mle"),
    ):
        rows = results(file)
        yield facts(file)["predicted"]["s"], percent(rows[new]["PPL total"], rows[old]["PPL total"])


def gain_of_old_text(text, share, part):
    """By how many percent old text changes the perplexity of the old or the new text."""
    rows = results("fine-tuning-old-text")
    return abs(percent(rows[share][f"{text}: {part}"], rows["none"][f"{text}: {part}"]))


@claims_of("README.md")
def readme():
    for low, high in ((0, 1), (1, 5), (5, 10), (10, 30)):
        changes = span([-change for s, change in gains() if low <= s < high], 1, "%")
        gap = f"{low}% to {high}% | " if low else "below 1% | nearly the same (one training: "
        yield f"{gap}{changes} lower"
    rule = results("rule")
    hits = [is_hit(row["predicted"][0], row["seed 1"][0]) for row in rule.values()]
    texts = [name for name in rule if not name.startswith("the same")]
    yield f"before {WORDS[len(hits)]} trainings"
    yield f"million parameters, {WORDS[len(texts)]} texts)"
    yield f"[right for {WORDS[sum(hits)]}]"
    yield f"then before {WORDS[len(results('kept-texts'))]} on other texts, one [of 42 million]"
    claims = facts("which-cure")["claims"]
    for claim, total in (("0.999 for 0.98", "PPL total"), ("agg for mle", "calibrated PPL total")):
        changes = claims[claim]
        group = "[within](docs/glossary.md)" if total == "PPL total" else "within"
        yield f"{signed(changes[total])}, {group} the rare group {signed(changes['PPL within rare'])}"
    yield f"at s = {claims['0.999 for 0.98']['s']}%: "
    of_all, alone = (row["change"] for row in [*results("larger-seeds").values()][1:])
    yield f"lowers the perplexity by {-alone[0]:.1f}% ± {alone[1]:.1f} (three seeds)"
    yield f"for all parameters by {-of_all[0]:.1f}% ± {of_all[1]:.1f};"
    larger = results("larger")
    new, old = (larger[name]["PPL total"] for name in ("AGG, β₂ = 0.98", "likelihood, β₂ = 0.98"))
    yield f"with the default α, [{signed(percent(new, old))}]"
    texts = ("captions", "documentation", "GCIDE")
    old = (gain_of_old_text(text, "1%", "old") for text in texts)
    (new,) = {f"{gain_of_old_text(text, '1%', 'new'):.0f}%" for text in texts}
    yield "{:.0f}%, {:.0f}% and {:.0f}%, for {} of the new text's".format(*old, new)
    uniq = {}
    for (model, _, decoding), row in results("f2").items():
        uniq[model, decoding] = row["Uniq"][0]
    yield f"[{WORDS[round(uniq['MefMax', 'decoupled'] / uniq['MefMax', 'joint'])]} times]"
    half_lives = (math.log(2) / (1 - beta2) for beta2 in (0.95, 0.98, 0.999))
    yield "({:.0f} for β₂ = 0.95, {:.0f} for 0.98, {:.0f} for 0.999)".format(*half_lives)
    yield f"β₂ = 0.95, that is {50_257 / (math.log(2) / 0.05 * 5e5):.1%}"


@claims_of("docs/rule.md")
def rule():
    (seeds,) = (claim["three seeds"] for claim in facts("rule")["claims"].values())
    yield "{}, {} and {}".format(*map(signed, seeds))
    kept = results("kept-texts").values()
    of_all = [row["W alone"][0] / row["0.999"][0] - 1 for row in kept]
    better = WORDS[sum(change < 0 for change in of_all)]
    yield f"all {WORDS[len(kept)]} are hits. W alone is better on {better}"
    yield f"and {max(of_all):.1%} worse on one"
    ratios = [row["W alone"][0] / row["0.999"][0] for row in results("width").values()]
    assert ratios == sorted(ratios, reverse=True)
    yield "the wider the model, the better was W alone"
    chosen = results("rule-chosen").values()
    yield f"{WORDS[len(chosen)].capitalize()} trainings, in [rule-chosen.json]"
    shares, falls = ([abs(row[title][0]) for row in chosen] for title in ("s", "measured"))
    yield f"s of {span(shares, 1, '%')}, the perplexity fell by {span(falls, 1, '%')}"
    rows = results("rule")
    misses = [row for row in rows.values() if not is_hit(row["predicted"][0], row["seed 1"][0])]
    texts = [name for name in rows if not name.startswith("the same")]
    yield f"{WORDS[len(rows) - len(misses)]} of {WORDS[len(rows)]}, on {WORDS[len(texts)]} texts"
    yield from (f"| {signed(row['seed 1'])} (miss) |" for row in misses)
    *_, (_, demo) = gains()
    yield f"−1.5%, and {signed(demo)} was measured"
    once = {name: "{} ± {}".format(*row["without"]) for name, row in results("seen-once").items()}
    yield f"without `<unk>` from {once['β₂ = 0.98']} to {once['0.999']}"
    yield f"({once['0.999, dropout 0.2']})"


@claims_of("docs/which-cure.md")
def which_cure():
    claims = facts("which-cure")["claims"]
    beta2, of_agg = claims["0.999 for 0.98"], claims["0.999 for agg with 0.98"]
    within = (size(beta2[f"PPL within {name}"]) for name in ("frequent", "medium", "rare"))
    yield f"lowers the total by {size(beta2['PPL total'])}, and PPL within by " + (
        "{} (frequent), {} (medium) and {} (rare)".format(*within)
    )
    yield f"{size(of_agg['PPL total'])} below that of AGG with 0.98"
    agg, agg_999 = claims["agg for mle"], claims["agg for mle, 0.999"]
    for changes in (of_agg, agg):
        yield f"(both calibrated: {size(changes['calibrated PPL total'])})"
    for verb, changes in (("lowers", agg), ("**With 0.999, it raises**", agg_999)):
        yield f"{verb} the total by {size(changes['PPL total'])}"
        yield f", and PPL within rare by {size(changes['PPL within rare'])}."
    bias = claims["bias-fixed for mle"]
    yield f"lowers the total by {size(bias['PPL total'])} with β₂ = 0.98, and gains nothing"
    yield f"(+{size(bias['with 0.999'])})"
    longer = claims["0.999 for 0.98, 32,640 updates, seed 1"]
    first, last = -longer["seed 1 after 16,320 updates"], 100 - 100 * longer["to"] / longer["from"]
    yield f"from {longer['from']} to {longer['to']}: the gain shrinks from {first}% to {last:.1f}%"
    ppl = claims["PPL rare; which seeds was not recorded"]
    yield f"{ppl['mle']:,} with plain likelihood, and {ppl['agg']:,} with AGG"
    yield f"the two have {ppl['calibrated mle']:,} and {ppl['calibrated agg']:,}"
    words, pieces = (
        results("rule-chosen")[f"German captions, a third, {of}", "3", "0.98"]["measured"]
        for of in ("words seen once as <unk>", "4,000 sub-words")
    )
    yield f"gain {size(words)}, and {-pieces[0]}% with"


@claims_of("docs/why.md")
def why():
    x = {name: row["x"][0] for name, row in results("n-and-x").items()}
    yield f"x is [{min(x.values())} to {max(x.values())}](results/n-and-x.json)"
    yield f"{x['AGG, the released code']} for AGG's, with 0.98, but also {x['F²-Softmax']} for"
    point = results("pushes-and-pulls")["N = 76, β₂ = 0.98", "16"]
    x, ratio = point["x"][0], point["pushes/pulls"][0]
    yield f"({ratio:.1f} for {1 / (1 - x):.1f} at x = {x:.2f})"
    vast = facts("large-vocabulary")["claims"]["0.999 for 0.98"]
    total, within = size(vast["PPL total"]), size(vast["PPL within rare"])
    yield f"lowers the total by {total}, and PPL within rare by {within}"


def ratios(rows, name, to, part=0, size=None):
    """The ratios of time (part 0) or memory (1) of two rows, at one size or at all."""
    sizes = [size] if size else [one for one, values in rows[name].items() if values]
    return [rows[name][size][part] / rows[to][size][part] for size in sizes]


@claims_of("docs/performance.md")
def performance_on_a_gpu():
    of, of_f2, about = results("gpu-criterions"), results("gpu-f2"), facts("gpu-criterions")
    yield f"`mle` takes {span(ratios(of, 'mle', 'compiled cross_entropy'), 2)} times"
    yield f"`agg` takes {span(ratios(of, 'agg', 'mle'), 2)} times as long as `mle`"
    optimizers = next(iter(about["claims"].values()))
    own, foreach, fused = (  # 1.245 is 1.25
        f"{optimizers[name] + 1e-9:.2f}"
        for name in ("EmbeddingAdam", "AdamW, foreach", "AdamW, fused")
    )
    yield f"takes {own} ms, of AdamW {foreach}, fused {fused}"
    to_mle = ratios(of_f2, "MefMax", "mle")
    yield f"MefMax takes {to_mle[0]:.2f} and {to_mle[1]:.2f} times as long as `mle`"
    smoothed = ratios(of_f2, "MefMax, label smoothing 0.1", "mle")
    yield f"With label smoothing, it takes {span(smoothed)} times"
    for decoding, words in (
        ("joint", "`joint` takes {} times as long as the full softmax"),
        ("greedy-class", "`greedy-class` {}"),
        ("sample-class", "`sample-class` {}"),
    ):
        found = []
        for number in (1, 160):
            row, full = (
                f"generation, {name}, {number} per step" for name in (decoding, "full softmax")
            )
            found += ratios(of_f2, row, full)
        yield words.format(span(found))


@claims_of("docs/huggingface.md")
def huggingface():
    words = "{} with `mle`, {} with `mle` and 0.999, {} with `agg` (window of 20), {} with `agg` and a fixed bias"
    *found, last = (row["PPL total"][0] for row in results("huggingface").values())
    yield words.format(*found)
    yield f"{last} with the bias and 0.999"


@claims_of("docs/results.md")
def results_md():
    totals = {}
    for row in json.loads((RESULTS / "cures-4080.json").read_text(encoding="utf-8"))["rows"]:
        name, seed = row["name"]
        totals.setdefault(name, {})[seed] = row["perplexity"]["total"]
    for name, words in (
        ("agg", "AGG lowers the total by {:.1f}% ± {:.1f}"),
        ("agps", "needs no calibration, by {:.1f}% ± {:.1f}"),
        ("f2", "F²-Softmax by {:.1f}% ± {:.1f}"),
        ("cosreg", "CosReg raises the total by {:.1f}% ± {:.1f}"),
    ):
        change = SeedValues(totals[name]).change(SeedValues(totals["mle"]), relative=True)
        yield words.format(abs(change.mean), change.deviation)
    larger = results("larger-seeds")
    alone, of_all = (larger[f"β₂ = 0.999{of}"]["change"] for of in (" for W alone", ""))
    yield f"by {-alone[0]:.1f}% ± {alone[1]:.1f} for W alone"
    yield f"by {-of_all[0]:.1f}% ± {of_all[1]:.1f} for all parameters"
    f2 = {(name, decoding): row["PPL total"] for (name, _, decoding), row in results("f2").items()}
    yield f"{-percent(f2['MefMax', 'joint'], f2['none (MLE)', 'joint']):.1f}% *below* that"
    yield f"its WikiText-103: {100 * (25.6 / 24.7 - 1):.1f}% above"  # scripts/wikitext103/f2-table-1.tsv


@claims_of("examples/awd_lstm/README.md")
def awd_lstm():
    rows = results("awd-lstm")
    found = [
        rows[f"AWD-LSTM{of}"]["alone"][0] for of in ("", ", CosReg", ", fine-tuned for 4 epochs")
    ]
    cached = rows["AWD-LSTM"]["with a cache of 2,000"][0]
    yield "from {:g} to {:g}, {:g} and {:g}".format(*found, cached)


@claims_of("docs/method.md")
def method():
    windows = facts("which-cure")["claims"][
        "window, 4,080 updates with 0.98, seed 1, version 0.2.0"
    ]
    yield f"{windows['mle']} with plain likelihood, {windows['one epoch']} with AGG and a window of"
    yield f"{windows['200']} with a window of 200"


@claims_of("docs/fine-tuning.md")
def fine_tuning():
    captions, documentation = (
        gain_of_old_text(text, "1%", "old") for text in ("captions", "documentation")
    )
    yield f"by {captions:.0f}% ± 3 and {documentation:.0f}% ± 3"
    for share, words in (
        ("1%", "by {:.0f}% for {:.1f}%, and"),
        ("5%", "5% by {:.0f}% for {:.1f}%"),
    ):
        yield words.format(*(gain_of_old_text("GCIDE", share, part) for part in ("old", "new")))


@pytest.mark.parametrize("claims", CLAIMS)
def test_sentences_have_the_numbers_of_the_files(claims):
    text = " ".join((ROOT / claims.partition(",")[0]).read_text().split())
    assert not [sentence for sentence in CLAIMS[claims]() if sentence not in text]


def test_every_percentage_of_the_readme_is_compared():
    text = " ".join(without_code(README).split())
    for sentence in readme():
        text = text.replace(sentence, "")
    # of old text; s above 1%; rarest
    assert {*re.findall(r"[\d.]+%|± [\d.]+", text)} <= {"1%", "30%"}


@pytest.mark.parametrize(("file", "title"), [("kept-texts", "change"), ("rule-chosen", "measured")])
def test_all_predictions_for_texts_that_were_kept_are_hits(file, title):
    assert all(is_hit(row["rule"][0], row[title][0]) for row in results(file).values())


def test_every_file_of_results_is_shown_and_says_where_it_is_from():
    text = "\n".join(page.read_text() for page in PAGES)
    named = {file for file, _ in TABLE.findall(text) if file}
    named |= {*re.findall(r"results/([\w-]+\.json)\)", text)}
    assert {path.name for path in RESULTS.glob("*.json")} == named
    for file in named:
        assert {"command", "commit", "machine", "versions"} <= facts(file[:-5]).keys(), file


def test_results_of_runs_are_collected(tmp_path, monkeypatch):
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "t.tsv").write_text("# A table\n\teval/PPL total\teval/E/O rare\nmle\nagg\n")
    columns = {"perplexity": ["total", "rare"], "expected_over_observed": ["rare"]}
    for seed, total in (("a", 10.0), ("b", 13.0)):
        row = {"perplexity": {"total": total, "rare": 1.0}, "expected_over_observed": {"rare": 0.5}}
        path = tmp_path / seed / "mle" / "eval.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(Result({"mle": row}, columns, {}).json()))
    monkeypatch.setattr(collect, "ROOT", tmp_path)
    runs = [str(tmp_path / seed) for seed in "ab"]
    collect.main(["NAME", str(tmp_path / "t.tsv"), *runs, "--command", "make demo"])
    _, rows = read_results(tmp_path / "docs" / "results" / "NAME.json")
    assert rows == {("mle",): {"PPL total": pytest.approx([11.5, 4.5**0.5]), "E/O rare": [0.5]}}
