"""The pages: links resolve, options exist, README links every page, and numbers are those of docs/results.

A table of measured numbers follows a comment `<!--results:NAME.json-->`. The file has each number of the table, by the
names of its row and its column, as docs/README.md describes.
"""

import importlib.util
import json
import math
import re
from collections.abc import Sequence
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


def anchors(page):
    """Of the headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
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


def cells(line: str) -> list[str]:
    """The cells of a line of a table, without markup."""
    texts = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [" ".join(re.sub(r"[*`†]|\[(.*?)\]\(.*?\)", r"\1", text).split()) for text in texts]


def read_results(path: Path) -> tuple[list[str], dict[tuple[str, ...], dict[str, list]]]:
    """The labels, and the numbers of each cell by the name of its row and the title of its column: mean and deviation.

    The last label is the seed. Rows of several seeds are averaged; `mean` and `deviation` stand for seeds whose
    own numbers were not kept. A number may be a list of what one cell shows.
    """
    result = json.loads(path.read_text(encoding="utf-8"))
    rows: dict[tuple[str, ...], dict[str, dict[str, object]]] = {}
    for row in result["rows"]:
        *name, seed = row["name"]
        for title, value in values_of_row(row, result["columns"]).items():
            rows.setdefault(tuple(name), {}).setdefault(title, {})[seed] = value
    shown = {name: {title: mean_and_deviation(values) for title, values in of_row.items()}
             for name, of_row in rows.items()}  # fmt: skip
    return result["labels"][:-1], shown


def values_of_row(row: dict, columns: dict | list) -> dict[str, object]:
    """The values of a row by the titles of their columns, in the unit of tables.

    `columns` are titles, or as in what commands write to --json: by measure the keys, such as frequency groups.
    """
    if isinstance(columns, list):
        return {title: row.get(title) for title in columns}
    values = {}
    for measure, keys in columns.items():
        for key in keys:
            of_row = row.get(measure)
            value = of_row.get(key) if isinstance(of_row, dict) else of_row
            title = METRICS[measure].title.format(key).strip()
            values[title] = value if value is None else value * METRICS[measure].scale
    return values


def mean_and_deviation(values: dict[str, object]) -> list[float]:
    """What a cell shows of the values by seed: nothing, a number, several, or mean and standard deviation."""
    if {*values} <= {"mean", "deviation"}:
        numbers = [values.get("mean"), values.get("deviation")]
        if isinstance(numbers[0], list):
            return numbers[0]
        return [number for number in numbers if number is not None]
    seeds = SeedValues(values)
    if not seeds.numbers:
        return []
    return [seeds.mean, seeds.deviation] if seeds.deviation else [seeds.mean]


def is_shown(number: str, value: float) -> bool:
    """Whether a number of a page is this value, rounded to its digits."""
    shown = float(number.replace(",", "").replace("−", "-"))
    if "e" in number:
        return math.isclose(shown, value, rel_tol=0.05)
    return abs(shown - value) <= 0.5000001 * 10 ** -len(number.partition(".")[2])


def errors_of_table(file: str, lines: list[str]) -> list[str]:
    """What a table of a page has otherwise than its file, which may have more rows and columns."""
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
            if (
                values is None
                or len(numbers) != len(values)
                or not all(map(is_shown, numbers, values))
            ):
                wrong.append(f"{name}, {title}: {text} instead of {values}")
    return wrong


def errors_of_page(text: str) -> list[str]:
    """What the tables of a page have otherwise than their files."""
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


def results(file: str) -> dict[tuple[str, ...], dict[str, list]]:
    """The numbers of a file of results, by row and column."""
    return read_results(RESULTS / f"{file}.json")[1]


def facts(file: str) -> dict:
    """What a file of results says beside its numbers."""
    return json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))["facts"]


def percent(new: list[float], old: list[float]) -> float:
    """The change from one number to another, in percent."""
    return 100 * (new[0] / old[0] - 1)


def signed(change: list[float], unit: str = "%") -> str:
    """A change with its sign and, where it has one, its deviation."""
    text = f"{change[0]:+.1f}{unit}".replace("-", "−")
    return text if len(change) == 1 else f"{text} ± {change[1]:.1f}"


def is_hit(predicted: float, measured: float) -> bool:
    """As commit f845a97 defined it, before the trainings."""
    near = abs(predicted - measured) <= 2 or 0.5 <= measured / predicted <= 2
    return predicted * measured > 0 and near


def gains() -> list[tuple[float, float]]:
    """Of each training: s, and the measured change of the perplexity, both in percent."""
    pairs = [(row["s"][0], row["three seeds"][0]) for row in results("rule").values()]
    pairs += [(row["s"][0], row["measured"][0]) for row in results("rule-chosen").values()]
    for file in ("which-cure", "large-vocabulary"):
        claim = facts(file)["claims"]["0.999 for 0.98"]
        pairs.append((claim["s"], claim["PPL total"][0]))
    for file, old, new in (
        ("larger", "likelihood, β₂ = 0.98", "β₂ = 0.999"),
        ("demo", "mle", "mle-beta2-0.999"),
    ):
        change = percent(*(results(file)[row,]["PPL total"] for row in (new, old)))
        pairs.append((facts(file)["predicted"]["s"], change))
    return pairs


def gain(low: float, high: float) -> str:
    """The range of the gains where s is in [low, high), as README says it."""
    changes = [-change for s, change in gains() if low <= s < high]
    least, most = f"{min(changes):.1f}%", f"{max(changes):.1f}%"
    return f"{least} lower" if least == most else f"{least} to {most} lower"


def sentences() -> dict[str, list[str]]:
    """By page, what its sentences say of numbers in docs/results."""
    words = "no one two three four five six seven eight nine ten eleven".split()
    rule = results("rule")
    hits = [is_hit(row["predicted"][0], row["seed 1"][0]) for row in rule.values()]
    texts = [name for (name,) in rule if not name.startswith("the same")]
    few = rule["Shakespeare, BPE 2,000",]
    times = words[round(few["three seeds"][0] / few["predicted"][0])]
    large = results("larger")
    agg = percent(
        large["AGG, β₂ = 0.98",]["PPL total"], large["likelihood, β₂ = 0.98",]["PPL total"]
    )
    claims = facts("which-cure")["claims"]
    vast = facts("large-vocabulary")["claims"]["0.999 for 0.98"]
    awd = results("awd-lstm")
    speed, sizes_of_speed = results("f2-speed"), "V = 44,256, N = 2,048"
    gpu, gpu_f2, of_gpu = results("gpu-criterions"), results("gpu-f2"), facts("gpu-criterions")
    unaligned, optimizers = of_gpu["claims"].values()
    (whole_step,) = facts("criterions")["claims"].values()
    point = results("pushes-and-pulls")["N = 76, β₂ = 0.98", "16"]
    f2 = {(name[0], name[2]): row for name, row in results("f2").items()}
    larger_beta2, gated = claims["0.999 for 0.98"], claims["agg for mle"]
    longer = claims["0.999 for 0.98, 32,640 updates, seed 1"]
    rare = claims["PPL rare; which seeds was not recorded"]
    chosen = results("rule-chosen")
    captions = chosen["German captions, a third, words seen once as <unk>", "3", "0.98"]["measured"]
    pieces = chosen["German captions, a third, 4,000 sub-words", "3", "0.98"]["measured"][:1]

    (seeds,) = (claim["three seeds"] for claim in facts("rule")["claims"].values())

    def ends(rows: dict, title: str) -> list[float]:
        sizes = sorted(abs(row[title][0]) for row in rows.values())
        return [sizes[0], sizes[-1]]

    def sizes(claim: str) -> list[str]:
        changes = [change for change in claims[claim].values() if isinstance(change, list)]
        return [f"{abs(mean)}% ± {deviation}" for mean, deviation in changes]

    def from_to(
        rows: dict, names: Sequence[str], to: str, sizes: slice = slice(None), part: int = 0
    ) -> list[float]:
        """The lowest and the highest ratio of time (part 0) or memory (1), over rows and sizes."""
        found = [
            row[part] / base[part]
            for name in names
            for row, base in list(zip(rows[name,].values(), rows[to,].values(), strict=True))[sizes]
        ]
        return [min(found), max(found)]

    def in_generation(decoding: str) -> list[float]:
        both = [
            from_to(
                gpu_f2,
                [f"generation, {decoding}, {number} per step"],
                f"generation, full softmax, {number} per step",
            )
            for number in (1, 160)
        ]
        return [min(least for least, _ in both), max(most for _, most in both)]

    losses = [name for (name,) in gpu if (f"{name}, before",) in gpu and name != "ul + agg"]
    x_of = {name: row["x"][0] for (name,), row in results("n-and-x").items()}
    xs = sorted(x_of.values())
    mixed = results("fine-tuning-old-text")

    def effects(text: str, share: str) -> tuple[float, float]:
        rows = mixed[share,], mixed["none",]
        old, new = (percent(*(row[f"{text}: {part}"] for row in rows)) for part in ("old", "new"))
        return old, new

    effects_of_1 = [effects(text, "1%") for text in ("captions", "documentation", "GCIDE")]
    old = [-change for change, _ in effects_of_1]
    new = {f"{change:.0f}%" for _, change in effects_of_1}
    uniq = {decoding: row["Uniq"][0] for (of, decoding), row in f2.items() if of == "MefMax"}
    once = {
        name: "{} ± {}".format(*row["without"]) for (name,), row in results("seen-once").items()
    }
    return {
        "README.md": [
            f"below 1% | nearly the same (one training: {gain(0, 1)})",
            f"1% to 5% | {gain(1, 5)}; with three seeds at {few['s'][0]}%, {times} times what the rule says",
            f"5% to 10% | {gain(5, 10)}",
            f"10% to 30% | {gain(10, 30)}",
            f"before {words[len(hits)]} trainings (0.3 to 0.7 million parameters, {words[len(texts)]} texts)",
            f"[right for {words[sum(hits)]}]",
            f"then before {words[len(results('kept-texts'))]} on other texts, one [of 42 million](docs/results.md#"
            "a-model-of-42-million-parameters), and right for all",
            f"{signed(larger_beta2['PPL total'])}, [within](docs/glossary.md) the rare group "
            f"{signed(larger_beta2['PPL within rare'])}",
            f"{signed(gated['calibrated PPL total'])}, within the rare group "
            f"{signed(gated['PPL within rare'])}",
            f"with the default α, [{signed([agg])}]",
            "{:.0f}%, {:.0f}% and {:.0f}%, for {} of the new text's".format(*old, *new),
            f"[{words[round(uniq['decoupled'] / uniq['joint'])]} times]",
            "({:.0f} for β₂ = 0.95, {:.0f} for 0.98, {:.0f} for 0.999)".format(
                *(math.log(2) / (1 - beta2) for beta2 in (0.95, 0.98, 0.999))
            ),
            f"β₂ = 0.95, that is {50_257 / (math.log(2) / 0.05 * 5e5):.1%}",
        ],
        "docs/rule.md": [
            "{}, {} and {}".format(*(signed([change]) for change in seeds)),
            f"All {words[len(results('kept-texts'))]} are hits, and W alone is as good or better",
            f"{words[len(chosen)].capitalize()} trainings, in [rule-chosen.json](results/rule-chosen.json), all of "
            "them hits",
            "s of {}% to {}%, the perplexity fell by {}% to {}%".format(
                *(size for title in ("s", "measured") for size in ends(chosen, title))
            ),
            f"{words[sum(hits)]} of {words[len(hits)]}, on {words[len(texts)]} texts",
            *(f"| {signed(row['seed 1'])} (miss) |" for hit, row in zip(hits, rule.values(), strict=True)
              if not hit),
            f"−1.5%, and {signed([gains()[-1][1]])} was measured",
            f"without `<unk>` from {once['β₂ = 0.98']} to {once['0.999']}",
            f"({once['0.999, dropout 0.2']})",
        ],
        "docs/which-cure.md": [
            "lowers the total by {}, and PPL within by {} (frequent), {} (medium) and {} (rare). The total is {} below "
            "that of AGG with 0.98 (both calibrated: {})".format(
                *sizes("0.999 for 0.98"), *sizes("0.999 for agg with 0.98")
            ),
            "lowers the total by {} (both calibrated: {}), and PPL within rare by {}. **With 0.999, it raises** the "
            "total by {}, and PPL within rare by {}.".format(*sizes("agg for mle"), *sizes("agg for mle, 0.999")),
            "lowers the total by {} with β₂ = 0.98, and gains nothing with 0.999 (+{})".format(
                *sizes("bias-fixed for mle")
            ),
            f"from {longer['from']} to {longer['to']}: the gain shrinks from "
            f"{-longer['seed 1 after 16,320 updates']}% to {100 - 100 * longer['to'] / longer['from']:.1f}%",
            "{mle:,} with plain likelihood, and {agg:,} with AGG".format(**rare),
            "the two have {calibrated mle:,} and {calibrated agg:,}".format(**rare),
            "gain {}% ± {}, and {}% with".format(*(abs(number) for number in (*captions, *pieces))),
        ],
        "docs/why.md": [
            f"x is [{xs[0]} to {xs[-1]}](results/n-and-x.json) for a token that occurs five times: "
            f"{x_of['AGG, the released code']} for AGG's, with 0.98, but also {x_of['F²-Softmax']} for F²-Softmax's",
            f"({point['pushes/pulls'][0]:.1f} for {1 / (1 - point['x'][0]):.1f} at x = {point['x'][0]:.2f})",
            "lowers the total by {}% ± {}, and PPL within rare by {}% ± {}".format(
                *(abs(number) for title in ("PPL total", "PPL within rare") for number in vast[title])
            ),
        ],
        "docs/performance.md": [
            "takes {cross_entropy, ms:,} ms with `cross_entropy`, {mle} of that with `mle`, and {agg} with `agg` "
            "(`python -m benchmarks.train_step --repeats 7`)".format(**whole_step),
            "take {} of the time of `cross_entropy` and {} of its memory".format(
                *speed["f2_softmax, MefMax",][sizes_of_speed]
            ),
            "8 classes of equal frequency {} and {}".format(
                *speed["8 classes of equal frequency",][sizes_of_speed]
            ),
            "adaptive softmax {} and {}".format(*speed["adaptive softmax",][sizes_of_speed]),
            "MefMax takes {} and {}".format(*speed["MefMax, label smoothing 0.1",][sizes_of_speed]),
            "`mle` takes {:.1f} to {:.1f} times".format(*from_to(gpu, ["mle"], "compiled cross_entropy")),
            "`agg` takes {:.2f} to {:.2f} times as long as `mle`, `unlikelihood` up to {:.2f}".format(
                *from_to(gpu, ["agg"], "mle"), from_to(gpu, ["unlikelihood"], "mle")[1]
            ),
            "all take {:.2f} to {:.2f} times as long as `cross_entropy`, with {:.2f} to {:.2f} of its memory".format(
                *(ratio for part in (0, 1) for ratio in from_to(gpu, losses, "cross_entropy", slice(3, 4), part))
            ),
            "the GPU works for {kernels, ms:.2f} ms (torch's profiler); the rest of {0:.1f} to {1:.1f} ms is the "
            "host, which launches {operations launched by the host} operations".format(
                *(next(iter(rows["mle",].values()))[0] for rows in (gpu_f2, gpu)), **of_gpu["profile of mle"]
            ),
            "took {mle} ms for `mle` and {agg} for `agg` (compiled: {compiled cross_entropy}), of which "
            "{three products} were the products".format(**unaligned),
            "takes {EmbeddingAdam:.2f} ms, of AdamW {AdamW, foreach:.2f}, fused {AdamW, fused:.2f}".format(
                **{name: time + 1e-9 for name, time in optimizers.items()}  # 1.245 is 1.25
            ),
            "MefMax takes {:.2f} to {:.2f} times as long as `mle`, and with label smoothing {:.1f} to {:.1f}".format(
                *from_to(gpu_f2, ["MefMax"], "mle"), *from_to(gpu_f2, ["MefMax, label smoothing 0.1"], "mle")
            ),
            "`joint` takes {:.1f} to {:.1f} times as long as the full softmax, `greedy-class` {:.1f} to {:.1f}, "
            "`sample-class` {:.1f} to {:.1f}".format(
                *(ratio for decoding in ("joint", "greedy-class", "sample-class") for ratio in in_generation(decoding))
            ),
        ],
        "docs/huggingface.md": [
            "{} with `mle`, {} with `mle` and 0.999, {} with `agg` (window of 20), {} with `agg` and a fixed bias, and "
            "{} with the bias and 0.999".format(*(row["PPL total"][0] for row in results("huggingface").values()))
        ],
        "docs/results.md": [
            f"{-percent(f2['MefMax', 'joint']['PPL total'], f2['none (MLE)', 'joint']['PPL total']):.1f}% *below* that",
            f"its WikiText-103: {100 * (25.6 / 24.7 - 1):.1f}% above",  # scripts/wikitext103/f2-table-1.tsv
        ],
        "examples/awd_lstm/README.md": [
            "from {alone:g} to {0:g}, {1:g} and {2:g}".format(
                awd["AWD-LSTM, CosReg",]["alone"][0],
                awd["AWD-LSTM, fine-tuned for 4 epochs",]["alone"][0],
                awd["AWD-LSTM",]["with a cache of 2,000"][0],
                alone=awd["AWD-LSTM",]["alone"][0],
            )
        ],
        "docs/method.md": [
            "{} with plain likelihood, {} with AGG and a window of one epoch (2,040 updates), and {} with a window of "
            "200".format(*claims["window, 4,080 updates with 0.98, seed 1, version 0.2.0"].values())
        ],
        "docs/fine-tuning.md": [
            f"by {old[0]:.0f}% ± 3 and {old[1]:.0f}% ± 3",
            "lowers it by {:.0f}% for {:.1f}%, and 5% by {:.0f}% for {:.1f}%".format(
                *(abs(change) for share in ("1%", "5%") for change in effects("GCIDE", share))
            ),
        ],
    }  # fmt: skip


def test_sentences_have_the_numbers_of_the_files():
    missing = []
    for page, expected in sentences().items():
        text = " ".join((ROOT / page).read_text().split())
        missing += [(page, sentence) for sentence in expected if sentence not in text]
    assert not missing


def test_every_percentage_of_the_readme_is_compared():
    text = " ".join(re.sub(r"```.*?```", "", README.read_text(), flags=re.DOTALL).split())
    for sentence in sentences()["README.md"]:
        text = text.replace(sentence, "")
    assert {*re.findall(r"[\d.]+%|± [\d.]+", text)} <= {"1%"}  # of old text; s above 1%


def test_all_predictions_for_texts_that_were_kept_are_hits():
    kept = results("kept-texts").values()
    assert all(is_hit(row["rule"][0], row["change"][0]) for row in kept) and len(kept) == 4
    assert all(row["W alone"][0] < 1.005 * row["0.999"][0] for row in kept)  # as good or better
    chosen = results("rule-chosen").values()
    assert all(is_hit(row["rule"][0], row["measured"][0]) for row in chosen) and len(chosen) == 11


def test_every_file_of_results_is_shown_and_says_where_it_is_from():
    text = "\n".join(page.read_text() for page in PAGES)
    named = {file for file, _ in TABLE.findall(text)} | {
        *re.findall(r"results/([\w-]+\.json)\)", text),
        "",
    }
    assert {path.name for path in RESULTS.glob("*.json")} | {""} == named
    for path in RESULTS.glob("*.json"):
        facts = json.loads(path.read_text(encoding="utf-8"))["facts"]
        assert {"command", "commit", "machine", "versions"} <= facts.keys(), path


def test_results_of_runs_are_collected(tmp_path, monkeypatch):
    """By scripts/results.py, for a table whose cells are mean and deviation of two seeds."""
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "t.tsv").write_text("# A table\n\teval/PPL total\teval/E/O rare\nmle\nagg\n")
    for seed, total in (("a", 10.0), ("b", 13.0)):
        (tmp_path / seed / "mle").mkdir(parents=True)
        row = {"perplexity": {"total": total, "rare": 1.0}, "expected_over_observed": {"rare": 0.5}}
        columns = {"perplexity": ["total", "rare"], "expected_over_observed": ["rare"]}
        result = Result({"mle": row}, columns, {"split": "test"})
        (tmp_path / seed / "mle" / "eval.json").write_text(json.dumps(result.json()))
    monkeypatch.setattr(collect, "ROOT", tmp_path)
    runs = [str(tmp_path / seed) for seed in "ab"]
    collect.main(["NAME", str(tmp_path / "t.tsv"), *runs, "--command", "make demo"])
    labels, rows = read_results(tmp_path / "docs" / "results" / "NAME.json")
    assert labels == [""] and rows.keys() == {("mle",)}
    assert rows["mle",]["PPL total"] == pytest.approx([11.5, 4.5**0.5])
    assert rows["mle",]["E/O rare"] == [0.5]
