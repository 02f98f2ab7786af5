"""The pages: links resolve, options exist, and numbers are those of docs/results, as docs/README.md
describes."""

import importlib.util
import itertools
import json
import math
import re
from pathlib import Path

import pytest

from agg_fairseq.columns import METRICS
from agg_fairseq.evaluation.group_shares import MEASURED_CHANGES
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


def test_readme_is_short_and_links_every_page():
    assert len(README.read_text().split()) <= 1000
    linked = re.findall(r"\]\((docs/[\w-]+\.md)", README.read_text())
    assert {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")} <= {*linked}


def plain(text):
    """A text in one line, without links, emphasis and quotes."""
    return " ".join(re.sub(r"[*`†]|\[([^]]*)\]\([^)]*\)", r"\1", text).split())


def cells(line):
    return [*map(plain, re.split(r"(?<!\\)\|", line.strip().strip("|")))]


def read_results(file):
    """The labels but that of the seed; and the rows, by title the list of numbers that a cell shows.

    Several seeds are averaged; `mean` and `deviation` stand for seeds whose numbers were not kept.
    """
    result, found = json.loads((RESULTS / file).read_text(encoding="utf-8")), {}
    for row in result["rows"]:
        *name, seed = row["name"]
        matching = found.setdefault(tuple(name), {})
        for title, value in values_of_row(row, result["columns"]).items():
            matching.setdefault(title, {})[seed] = value
    for matching in found.values():
        for title, values in matching.items():
            matching[title] = shown(values)
    return result["labels"][:-1], found


def values_of_row(row, columns):
    """The values by title. `columns` are titles, or keys by measure, as commands write to --json."""
    if isinstance(columns, list):
        return {title: row[title] for title in columns if title in row}
    values = {}
    for measure, keys in columns.items():
        for key in keys:
            value = row.get(measure)
            if isinstance(value, dict):
                value = value.get(key)
            title = METRICS[measure].title.format(key).strip()
            values[title] = value and value * METRICS[measure].scale
    return values


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


WORDS = "no one two three four five six seven eight nine ten eleven".split()


def results(file):
    """The numbers of a file of results, by row (a tuple, if there are several labels) and column."""
    labels, rows = read_results(f"{file}.json")
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
    least, most = f"{min(values):.{digits}f}{unit}", f"{max(values):.{digits}f}{unit}"
    return least if least == most else f"{least} to {most}"


def is_hit(predicted, measured):
    """As commit f845a97 defined it, before the trainings."""
    near = abs(predicted - measured) <= 2 or 0.5 <= measured / predicted <= 2
    return predicted * measured > 0 and near


def predicted():
    """How many trainings there were for the rule, how many were hits, and on how many texts, in
    words; and the misses."""
    rows, misses = results("rule"), []
    for row in rows.values():
        if not is_hit(row["predicted"][0], row["seed 1"][0]):
            misses.append(row["seed 1"])
    texts = [name for name in rows if not name.startswith("the same")]
    return WORDS[len(rows)], WORDS[len(rows) - len(misses)], WORDS[len(texts)], misses


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


def gain_of_old_text(text, share="1%"):
    """By how many percent old text changes the perplexities of the old and of the new text."""
    rows, changes = results("fine-tuning-old-text"), []
    for part in ("old", "new"):
        column = f"{text}: {part}"
        changes.append(abs(percent(rows[share][column], rows["none"][column])))
    return changes


def larger_seeds():
    """By how much β₂ = 0.999 lowers the perplexity, for W alone and for all parameters."""
    rows, changes = results("larger-seeds"), []
    for name in ("β₂ = 0.999 for W alone", "β₂ = 0.999"):
        mean, deviation = rows[name]["change"]
        changes.append(f"{-mean:.1f}% ± {deviation:.1f}")
    return changes


def readme():
    for low, high in ((0, 1), (1, 5), (5, 10), (10, 30)):
        falls = [-change for s, change in gains() if low <= s < high]
        changes = span(falls, 1, "%")
        if low:
            shown = tuple(round(-fall, 1) for fall in (min(falls), max(falls)))
            assert MEASURED_CHANGES[low, high] == shown
        gap = f"{low}% to {high}% | " if low else "below 1% | nearly the same (one training: "
        yield f"{gap}{changes} lower"
    trainings, hits, *_ = predicted()
    kept = len(results("kept-texts"))
    numbers = (
        f"{WORDS.index(hits)} of {WORDS.index(trainings)} small trainings, then in {kept} of {kept}"
    )
    yield f"right within a factor of two in {numbers}, one of 42 million parameters"
    claims = facts("which-cure")["claims"]
    for claim, total in (("0.999 for 0.98", "PPL total"), ("agg for mle", "calibrated PPL total")):
        changes = claims[claim]
        yield f"{signed(changes[total])}, within the rare group {signed(changes['PPL within rare'])}"
    yield f"at s = {claims['0.999 for 0.98']['s']}%: "
    alone, all_parameters = larger_seeds()
    yield f"by −{alone} (W alone), −{all_parameters} (all parameters"
    for text in ("captions", "documentation", "GCIDE"):
        assert 60 < gain_of_old_text(text)[0] < 75, "two thirds"
    f2 = results("f2")
    more = f2["MefMax", "13", "decoupled"]["Uniq"][0] / f2["MefMax", "13", "joint"]["Uniq"][0]
    yield f"{WORDS[round(more)]} times"
    yield f"β₂ = 0.95, that is {50_257 / (math.log(2) / 0.05 * 5e5):.1%}"


def rule():
    (seeds,) = (claim["three seeds"] for claim in facts("rule")["claims"].values())
    yield "{}, {} and {}".format(*map(signed, seeds))
    kept = results("kept-texts").values()
    all_parameters = [row["W alone"][0] / row["0.999"][0] - 1 for row in kept]
    better = WORDS[sum(change < 0 for change in all_parameters)]
    yield f"all {WORDS[len(kept)]} are hits. W alone is better on {better}"
    yield f"and {max(all_parameters):.1%} worse on one"
    ratios = [row["W alone"][0] / row["0.999"][0] for row in results("width").values()]
    assert ratios == sorted(ratios, reverse=True)
    yield "the wider the model, the better was W alone"
    chosen = results("rule-chosen").values()
    yield f"{WORDS[len(chosen)].capitalize()} trainings, in rule-chosen.json"
    shares, falls = ([abs(row[title][0]) for row in chosen] for title in ("s", "measured"))
    yield f"s of {span(shares, 1, '%')}, the perplexity fell by {span(falls, 1, '%')}"
    trainings, hits, texts, misses = predicted()
    yield f"{hits} of {trainings}, on {texts} texts"
    for miss in misses:
        yield f"| {signed(miss)} (miss) |"
    *_, (_, demo) = gains()
    yield f"−1.5%, and {signed(demo)} was measured"
    once = results("seen-once")
    mean, deviation = once["β₂ = 0.98"]["without"]
    more, its_deviation = once["0.999"]["without"]
    yield f"without <unk> from {mean} ± {deviation} to {more} ± {its_deviation}"
    yield "({} ± {})".format(*once["0.999, dropout 0.2"]["without"])


def which_cure():
    claims = facts("which-cure")["claims"]
    beta2, agg_claims = claims["0.999 for 0.98"], claims["0.999 for agg with 0.98"]
    yield f"lowers the total by {size(beta2['PPL total'])}, and PPL within by"
    yield f"{size(beta2['PPL within frequent'])} (frequent), {size(beta2['PPL within medium'])} (medium)"
    yield f"and {size(beta2['PPL within rare'])} (rare)"
    yield f"{size(agg_claims['PPL total'])} below that of AGG with 0.98"
    agg, agg_999 = claims["agg for mle"], claims["agg for mle, 0.999"]
    for changes in (agg_claims, agg):
        yield f"(both calibrated: {size(changes['calibrated PPL total'])})"
    for verb, changes in (("lowers", agg), ("With 0.999, it raises", agg_999)):
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
    chosen, text = results("rule-chosen"), "German captions, a third"
    words = chosen[f"{text}, words seen once as <unk>", "3", "0.98"]["measured"]
    pieces = chosen[f"{text}, 4,000 sub-words", "3", "0.98"]["measured"]
    yield f"gain {size(words)}, and {-pieces[0]}% with"


def why():
    x = {name: row["x"][0] for name, row in results("n-and-x").items()}
    yield f"x is {min(x.values())} to {max(x.values())}"
    yield f"{x['AGG, the released code']} for AGG's, with 0.98, but also {x['F²-Softmax']} for"
    point = results("pushes-and-pulls")["N = 76, β₂ = 0.98", "16"]
    x, ratio = point["x"][0], point["pushes/pulls"][0]
    yield f"({ratio:.1f} for {1 / (1 - x):.1f} at x = {x:.2f})"
    vast = facts("large-vocabulary")["claims"]["0.999 for 0.98"]
    total, within = size(vast["PPL total"]), size(vast["PPL within rare"])
    yield f"lowers the total by {total}, and PPL within rare by {within}"
    rows, long = results("optimizers"), {"adamw-0.999", "schedule-free"}
    order = ("amsgrad", *sorted(long), "adafactor", "lion", "adamw-0.98", "adamw-no-momentum")
    order = itertools.combinations((*order, "adamw-0.95", "signsgd"), 2)
    pairs = [[rows[name]["PPL within rare"] for name in pair] for pair in order if {*pair} != long]
    hits = sum(first < second for first, second in pairs)
    yield f"{hits} of {len(pairs)} pairs are in this order"
    changes = []
    for short, rest in itertools.product(("0.98", "0.95"), ("-rest-muon", "")):
        changes.append(total_change("optimizers", f"adamw-0.999{rest}", f"adamw-{short}{rest}")[1:])
    yield "by {} ({} with the rest by AdamW), and instead of 0.95 by {} ({})".format(*changes)
    others = ("adafactor", "amsgrad", "schedule-free", "lion")
    changes = [total_change("optimizers", name, "adamw-0.999") for name in others]
    yield "by {} with Adafactor, {} with AMSGrad, {} with schedule-free AdamW, {} with".format(
        *changes
    )
    changes = [
        total_change("kinds", f"{size}-attention", f"{size}-none") for size in (64, 128, 256)
    ]
    yield "For the attention alone, 0.999 changes the total by {}, {} and {}".format(*changes)
    changes = [total_change("kinds", f"{size}-W", f"{size}-all")[1:] for size in (64, 128, 256)]
    yield "for all parameters, by {}, {} and {}".format(*changes)


def total_change(file, new, old):
    """The change of the total perplexity, paired by seed, as a page shows it."""
    totals = {new: {}, old: {}}
    for row in json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))["rows"]:
        name, seed = row["name"]
        if name in totals:
            totals[name][seed] = row["perplexity"]["total"]
    change = SeedValues(totals[new]).change(SeedValues(totals[old]), relative=True)
    return signed([change.mean, change.deviation] if change.deviation else change.mean)


def ratios(rows, name, to):
    """The ratios of time of two rows, at all sizes."""
    return [values[0] / rows[to][size][0] for size, values in rows[name].items() if values]


def performance():
    of, f2_rows = results("gpu-criterions"), results("gpu-f2")
    yield f"mle takes {span(ratios(of, 'mle', 'compiled cross_entropy'), 2)} times"
    yield f"agg takes {span(ratios(of, 'agg', 'mle'), 2)} times as long as mle"
    liger, cut = ratios(of, "mle", "liger-kernel")[1], ratios(of, "mle", "cut-cross-entropy")[2]
    yield f"mle takes {liger:.2f} times as long as Liger at the second size, and {cut:.2f} times as"
    mle_ratios = ratios(f2_rows, "MefMax", "mle")
    yield f"MefMax takes {mle_ratios[0]:.2f} and {mle_ratios[1]:.2f} times as long as mle"
    alone_facts = facts("gpu-f2")
    first, second = alone_facts["alone"]["ms"].values()
    yield f"{first['MefMax']} ms (mle {first['mle']}) and {second['MefMax']} ({second['mle']})"
    (third,) = alone_facts["earlier run"]["ms"].values()
    yield f"{third['MefMax']} ({third['mle']})"
    smoothed = ratios(f2_rows, "MefMax, label smoothing 0.1", "mle")
    yield f"With label smoothing, it takes {span(smoothed)} times"
    window, entropy, growth = map(facts("commands").get, ("window", "entropy", "growth"))
    process, _, checkpoint = window["3,150"]
    yield f"adds {process:.0f} MiB to a process and {checkpoint:.0f} to a checkpoint"
    checkpoint, least = window["30,000"][2], entropy["30,000"]
    yield f"adds {checkpoint:.0f} MiB to a checkpoint; the entropy of its counts, as Poisson"
    yield f"variables, is {least:.0f} MiB"
    del growth["what"]
    yield f"at most {max(full / half for half, full in growth.values()):.2f} times as long"


def huggingface():
    mle, beta2, agg, bias, both = (row["PPL total"][0] for row in results("huggingface").values())
    yield f"{mle} with mle, {beta2} with mle and 0.999, {agg} with agg (window of 20)"
    yield f"{bias} with agg and a fixed bias"
    yield f"{both} with the bias and 0.999"
    _, old_text, agg_with_added, *_ = added_tokens()
    yield from (old_text, agg_with_added)


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
    alone, all_parameters = larger_seeds()
    yield f"by {alone} for W alone"
    yield f"by {all_parameters} for all parameters"
    f2 = results("f2")
    mefmax, mle = f2["MefMax", "13", "joint"], f2["none (MLE)", "", "joint"]
    yield f"{-percent(mefmax['PPL total'], mle['PPL total']):.1f}% below that"


def awd_lstm():
    rows = results("awd-lstm")
    own, (cosreg,) = rows["AWD-LSTM"], rows["AWD-LSTM, CosReg"]["alone"]
    (alone,), (cached,) = own["alone"], own["with a cache of 2,000"]
    (tuned,) = rows["AWD-LSTM, fine-tuned for 4 epochs"]["alone"]
    yield f"from {alone:g} to {cosreg:g}, {tuned:g} and {cached:g}"


def method():
    claims = facts("which-cure")["claims"]
    ppl = claims["window, 4,080 updates with 0.98, seed 1, version 0.2.0"]
    yield f"{ppl['mle']} with plain likelihood, {ppl['one epoch']} with AGG and a window of"
    yield f"{ppl['200']} with a window of 200"


def fine_tuning():
    captions, documentation = gain_of_old_text("captions"), gain_of_old_text("documentation")
    yield f"by {captions[0]:.0f}% ± 3 and {documentation[0]:.0f}% ± 3"
    old, new = gain_of_old_text("GCIDE")
    yield f"by {old:.0f}% for {new:.1f}%, and"
    old, new = gain_of_old_text("GCIDE", "5%")
    yield f"5% by {old:.0f}% for {new:.1f}%"


def added_tokens():
    by_name = {}
    for row in json.loads((RESULTS / "added-tokens.json").read_text(encoding="utf-8"))["rows"]:
        name, seed = row["name"]
        for title in ("new text", "old text", "added tokens"):
            by_name.setdefault((name, title), {})[seed] = row.get(title)

    def change(name, title):
        base = SeedValues(by_name["added tokens", title])
        found = SeedValues(by_name[name, title]).change(base, relative=True)
        return f"{found.mean:+.0f}% ± {found.deviation:.0f}".replace("-", "−")

    for name in ("rows begin as the mean of their pieces", "1% of old text", "AGG, window of 50"):
        yield f"new text {change(name, 'new text')}, old text {change(name, 'old text')}"
    yield f"added tokens {change('AGG, window of 50', 'added tokens')}"
    for name in ("AGG, window of 200", "AGG, window of 50, β₂ = 0.98", "β₂ = 0.98", "fixed bias"):
        yield f"new text {change(name, 'new text')}"


CLAIMS = {
    "docs/added-tokens.md": added_tokens,
    "README.md": readme,
    "docs/rule.md": rule,
    "docs/which-cure.md": which_cure,
    "docs/why.md": why,
    "docs/performance.md": performance,
    "docs/huggingface.md": huggingface,
    "docs/results.md": results_md,
    "examples/awd_lstm/README.md": awd_lstm,
    "docs/method.md": method,
    "docs/fine-tuning.md": fine_tuning,
}
"""By page, a function that yields its phrases with numbers from docs/results."""


@pytest.mark.parametrize("page", CLAIMS)
def test_sentences_have_the_numbers_of_the_files(page):
    text = plain((ROOT / page).read_text())
    assert not [sentence for sentence in CLAIMS[page]() if sentence not in text]


def test_every_percentage_of_the_readme_is_compared():
    text = plain(strip_code(README))
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
